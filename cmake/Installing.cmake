# `cmake --install DIR --prefix PREFIX`: the libraries, the public headers, the command line, and
# the CMake package that find_package(sconce) reads.
include(CMakePackageConfigHelpers)
set(_package_dir lib/cmake/sconce)

install(TARGETS sconce sconce_ops EXPORT sconceTargets LIBRARY DESTINATION lib)
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

# ---- the Python package: `cmake --install DIR --component python --prefix SITE_PACKAGES` ---------
# Also what pyproject.toml makes a wheel of. LibTorch is in the process before these libraries are, and CUDA's libraries are
# packages beside this one.
configure_file("${PROJECT_SOURCE_DIR}/python/_version.py.in" "${PROJECT_BINARY_DIR}/python/_version.py" @ONLY)
set(_python COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/sconce" DESTINATION . ${_python} PATTERN __pycache__ EXCLUDE)
install(FILES "${PROJECT_BINARY_DIR}/python/_version.py" DESTINATION sconce ${_python})
foreach(_target sconce sconce_ops sconce_llvm sconce_cuda)
  if(TARGET ${_target})
    install(PROGRAMS $<TARGET_FILE:${_target}> DESTINATION sconce/lib ${_python})
  endif()
endforeach()
# The file has a longer name than the one that the libraries ask for.
install(CODE "
  file(REAL_PATH \"$<TARGET_FILE:TBB::tbb>\" _tbb)
  file(COPY_FILE \"\${_tbb}\" \"\${CMAKE_INSTALL_PREFIX}/sconce/lib/$<TARGET_SONAME_FILE_NAME:TBB::tbb>\")
  foreach(_name libsconce.so libsconce_ops.so libsconce_llvm.so libsconce_cuda.so)
    set(_library \"\${CMAKE_INSTALL_PREFIX}/sconce/lib/\${_name}\")
    if(EXISTS \"\${_library}\")
      file(RPATH_SET FILE \"\${_library}\" NEW_RPATH [[$ORIGIN:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib]])
      execute_process(COMMAND \"${CMAKE_STRIP}\" \"\${_library}\" COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()
" ${_python})
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION sconce/licenses ${_python})
# What is linked into the libraries, and oneTBB.
foreach(_package llvm-19-dev libtbb-dev libdeflate-dev nlohmann-json3-dev zlib1g-dev libzstd-dev)
  if(EXISTS "/usr/share/doc/${_package}/copyright")
    install(FILES "/usr/share/doc/${_package}/copyright" DESTINATION sconce/licenses RENAME "${_package}.txt" ${_python})
  endif()
endforeach()
