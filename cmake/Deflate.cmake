# Target Deflate: libdeflate, which reads compressed entries of model files and computes checksums. The static library where
# there is one, so that libsconce needs one file less at run time.
find_path(SCONCE_DEFLATE_INCLUDE_DIR libdeflate.h)
find_library(SCONCE_DEFLATE_LIBRARY NAMES libdeflate.a deflate)
if(NOT SCONCE_DEFLATE_INCLUDE_DIR OR NOT SCONCE_DEFLATE_LIBRARY)
  message(FATAL_ERROR "No libdeflate found. On Debian: apt-get install libdeflate-dev (tools/setup.sh does it).")
endif()
add_library(Deflate INTERFACE)
target_include_directories(Deflate SYSTEM INTERFACE "${SCONCE_DEFLATE_INCLUDE_DIR}")
target_link_libraries(Deflate INTERFACE "${SCONCE_DEFLATE_LIBRARY}")
target_link_options(Deflate INTERFACE -Wl,--exclude-libs,libdeflate.a)
