# `cmake --install DIR --prefix PREFIX`: the libraries, the public headers, the command line, and
# the CMake package that find_package(sconce) reads.
include(CMakePackageConfigHelpers)
set(_package_dir lib/cmake/sconce)

install(TARGETS sconce EXPORT sconceTargets LIBRARY DESTINATION lib)
foreach(_target sconce_llvm sconce_cuda sconce_tool)  # opened by libsconce; nobody links them
  if(TARGET ${_target})
    install(TARGETS ${_target} LIBRARY DESTINATION lib RUNTIME DESTINATION bin)
  endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/sconce" "${PROJECT_BINARY_DIR}/include/sconce" DESTINATION include)
# What <sconce/pass.h> includes.
foreach(_folder base ops ir analysis pipeline)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/src/${_folder}" DESTINATION include/sconce/internal FILES_MATCHING PATTERN "*.h")
endforeach()
# Installed, headers name one another from <sconce/…> on: a folder `ir` of the user's own is then no trouble.
install(CODE [[
  set(_include "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/include/sconce")
  file(GLOB_RECURSE _headers "${_include}/*.h")
  foreach(_header IN LISTS _headers)
    file(READ "${_header}" _text)
    string(REGEX REPLACE "#include \"((base|ops|ir|analysis|pipeline)/[^\"]*)\"" "#include <sconce/internal/\\1>" _rewritten "${_text}")
    if(NOT _rewritten STREQUAL _text)
      file(WRITE "${_header}" "${_rewritten}")
    endif()
  endforeach()
]])
install(EXPORT sconceTargets NAMESPACE sconce:: DESTINATION "${_package_dir}")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/sconceConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/sconceConfig.cmake" INSTALL_DESTINATION "${_package_dir}")
# The C++ interface may change in any 0.x version.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sconceConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${PROJECT_BINARY_DIR}/sconceConfig.cmake" "${PROJECT_BINARY_DIR}/sconceConfigVersion.cmake"
  "${PROJECT_SOURCE_DIR}/cmake/LibTorch.cmake"
  DESTINATION "${_package_dir}")
