// Members of LibTorch's classes that are private.
#pragma once

namespace sconce {

// C++ lets an explicit instantiation name a private member. Code that does so does not compile if LibTorch renames the
// member or changes its type. `Name` is a class of the user's, in namespace sconce:
//
//   struct SizeOfThing {
//     using Type = size_t Thing::*;
//     friend Type member(SizeOfThing);
//   };
//   template struct Opened<SizeOfThing, &Thing::size_>;      // then: thing.*member(SizeOfThing())
template <typename Name, typename Name::Type kMember>
struct Opened {
  friend typename Name::Type member(Name /*name*/) { return kMember; }
};

}  // namespace sconce
