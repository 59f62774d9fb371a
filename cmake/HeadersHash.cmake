# <sconce/headers_hash.h>: what the headers that a plug-in sees were when sconce was built, so that a plug-in built with others
# is told apart (rule R14).
file(GLOB_RECURSE _headers CONFIGURE_DEPENDS
  "${PROJECT_SOURCE_DIR}/include/sconce/*.h" "${PROJECT_SOURCE_DIR}/src/base/*.h" "${PROJECT_SOURCE_DIR}/src/ops/*.h"
  "${PROJECT_SOURCE_DIR}/src/ir/*.h" "${PROJECT_SOURCE_DIR}/src/analysis/*.h" "${PROJECT_SOURCE_DIR}/src/pipeline/*.h")
list(SORT _headers)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${_headers})
set(_hashes "")
foreach(_header IN LISTS _headers)
  file(SHA256 "${_header}" _hash)
  string(APPEND _hashes "${_hash}")
endforeach()
string(SHA256 SCONCE_HEADERS_HASH "${_hashes}")
string(SUBSTRING "${SCONCE_HEADERS_HASH}" 0 12 SCONCE_HEADERS_HASH)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/include/sconce/headers_hash.h" @ONLY CONTENT
"// Made by cmake/HeadersHash.cmake.
#pragma once

#define SCONCE_HEADERS_HASH \"@SCONCE_HEADERS_HASH@\"
")
