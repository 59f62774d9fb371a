# `cmake --install DIR --prefix PREFIX`: the libraries, the public headers, the command line, and
# the CMake package that find_package(sconce) reads.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/sconce")

install(TARGETS sconce EXPORT sconceTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
foreach(_target sconce_llvm sconce_cuda sconce_tool)  # opened by libsconce; nobody links them
  if(TARGET ${_target})
    install(TARGETS ${_target}
      LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/sconce" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
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
