// Hash maps and sets for the compiler's own keys. An insertion may move the entries: keep no reference across it.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <functional>

namespace sconce {

template <typename Key, typename T, typename Hash = std::hash<Key>, typename Equal = std::equal_to<Key>>
class FlatMap : public ska::flat_hash_map<Key, T, Hash, Equal> {
 public:
  using ska::flat_hash_map<Key, T, Hash, Equal>::flat_hash_map;
  bool contains(const Key& key) const { return this->find(key) != this->end(); }
};

template <typename Key, typename Hash = std::hash<Key>, typename Equal = std::equal_to<Key>>
class FlatSet : public ska::flat_hash_set<Key, Hash, Equal> {
 public:
  using ska::flat_hash_set<Key, Hash, Equal>::flat_hash_set;
  bool contains(const Key& key) const { return this->find(key) != this->end(); }
};

}  // namespace sconce
