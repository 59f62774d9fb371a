# What is installed, and what is packed.
#
#   cmake --install DIR --prefix PREFIX                           the tree: libraries, headers, command line, documents, and
#                                                                 the CMake package that find_package(sconce) reads
#   cpack --config DIR/CPackConfig.cmake                          the same as an archive
#   cmake --install DIR --component python --prefix SITE_PACKAGES the Python package, of which pyproject.toml makes a wheel
#
# The tree may be moved: its files find one another from where they are. LibTorch is `libtorch` in it, a folder or a link;
# `cmake --install` links the one of the build, and the archive has none.
include(CMakePackageConfigHelpers)
set(_package_dir lib/cmake/sconce)
set(_document_dir share/doc/sconce)

# What is linked into the binaries, or lies beside them.
set(_packages llvm-19-dev libtbb-dev libdeflate-dev nlohmann-json3-dev zlib1g-dev libzstd-dev)
set(_packages_of_tools libcli11-dev libfmt-dev libspdlog-dev)

function(sconce_install_licenses destination)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "PACKAGES;OPTIONS")
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION ${destination} ${arg_OPTIONS})
  # The libraries have inline code of LibTorch's headers. A wheel has the license beside the folder.
  file(GLOB license "${SCONCE_LIBTORCH}/LICENSE" "${SCONCE_LIBTORCH}/../torch-*.dist-info/licenses/LICENSE")
  if(license)
    list(POP_FRONT license first)
    install(FILES "${first}" DESTINATION ${destination} RENAME libtorch.txt ${arg_OPTIONS})
  endif()
  foreach(package IN LISTS arg_PACKAGES)
    if(EXISTS "/usr/share/doc/${package}/copyright")
      install(FILES "/usr/share/doc/${package}/copyright" DESTINATION ${destination} RENAME "${package}.txt" ${arg_OPTIONS})
    endif()
  endforeach()
endfunction()

# oneTBB, under the name that the libraries ask for; the file itself has a longer one.
function(sconce_install_tbb destination)
  install(CODE "
    file(REAL_PATH \"$<TARGET_FILE:TBB::tbb>\" _tbb)
    set(_destination \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${destination}\")
    file(MAKE_DIRECTORY \"\${_destination}\")
    file(COPY_FILE \"\${_tbb}\" \"\${_destination}/$<TARGET_SONAME_FILE_NAME:TBB::tbb>\")" ${ARGN})
endfunction()

# ---- the tree ----------------------------------------------------------------------------------
install(TARGETS sconce sconce_ops EXPORT sconceTargets LIBRARY DESTINATION lib)
foreach(_target sconce_llvm sconce_cuda sconce_nccl sconce_tool)  # opened by libsconce; nobody links them
  if(TARGET ${_target})
    install(TARGETS ${_target} LIBRARY DESTINATION lib RUNTIME DESTINATION bin)
  endif()
endforeach()
sconce_install_tbb(lib)
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

# Laid out as in the repository, so that links lead from page to page.
install(FILES "${PROJECT_SOURCE_DIR}/README.md" "${PROJECT_SOURCE_DIR}/CHANGELOG.md" "${PROJECT_SOURCE_DIR}/CONTRIBUTING.md"
  "${PROJECT_SOURCE_DIR}/LICENSE"
  DESTINATION ${_document_dir})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs" "${PROJECT_SOURCE_DIR}/examples" DESTINATION ${_document_dir}
  PATTERN __pycache__ EXCLUDE)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/src" DESTINATION ${_document_dir} FILES_MATCHING PATTERN "README.md")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bench/results" DESTINATION ${_document_dir}/bench)
sconce_install_licenses(${_document_dir}/licenses PACKAGES ${_packages} ${_packages_of_tools})
install(CODE "
  set(_link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/libtorch\")
  if(NOT EXISTS \"\${_link}\")
    file(CREATE_LINK \"${SCONCE_LIBTORCH}\" \"\${_link}\" SYMBOLIC)
  endif()" COMPONENT libtorch)

# ---- the archive -------------------------------------------------------------------------------
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_FILE_NAME "sconce-${PROJECT_VERSION}-libtorch-${SCONCE_LIBTORCH_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};sconce;Unspecified;/")
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)

# ---- the Python package ------------------------------------------------------------------------
# LibTorch is in the process before these libraries are, and CUDA's libraries are packages beside this one.
configure_file("${PROJECT_SOURCE_DIR}/python/_version.py.in" "${PROJECT_BINARY_DIR}/python/_version.py" @ONLY)
set(_python COMPONENT python EXCLUDE_FROM_ALL)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/sconce" DESTINATION . ${_python} PATTERN __pycache__ EXCLUDE)
install(FILES "${PROJECT_BINARY_DIR}/python/_version.py" DESTINATION sconce ${_python})
foreach(_target sconce sconce_ops sconce_llvm sconce_cuda sconce_nccl)
  if(TARGET ${_target})
    install(PROGRAMS $<TARGET_FILE:${_target}> DESTINATION sconce/lib ${_python})
  endif()
endforeach()
sconce_install_tbb(sconce/lib ${_python})
install(CODE "
  foreach(_name libsconce.so libsconce_ops.so libsconce_llvm.so libsconce_cuda.so libsconce_nccl.so)
    set(_library \"\${CMAKE_INSTALL_PREFIX}/sconce/lib/\${_name}\")
    if(EXISTS \"\${_library}\")
      file(RPATH_SET FILE \"\${_library}\" NEW_RPATH [[$ORIGIN:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib]])
      execute_process(COMMAND \"${CMAKE_STRIP}\" \"\${_library}\" COMMAND_ERROR_IS_FATAL ANY)
    endif()
  endforeach()" ${_python})
sconce_install_licenses(sconce/licenses PACKAGES ${_packages} OPTIONS ${_python})
