# Target Llvm: LLVM 19, for src/fusion/cpu/llvm only. Another LLVM 19 than the system's: -DLLVM_DIR=DIR.
find_package(LLVM 19.1 CONFIG)
if(NOT LLVM_FOUND)
  message(FATAL_ERROR "No LLVM 19 found. On Debian: apt-get install llvm-19-dev (tools/setup.sh does "
                      "it). Elsewhere: -DLLVM_DIR=DIR, the folder of LLVMConfig.cmake.")
endif()

add_library(Llvm INTERFACE)
target_include_directories(Llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
separate_arguments(_definitions UNIX_COMMAND "${LLVM_DEFINITIONS}")
target_compile_options(Llvm INTERFACE ${_definitions} $<$<NOT:$<BOOL:${LLVM_ENABLE_RTTI}>>:-fno-rtti>)

# The archives of the one target that kernels need start in a quarter of the time of libLLVM.so, which has all targets and
# opens a dozen libraries. They need zlib and zstd alone.
option(SCONCE_LLVM_STATIC "Link LLVM into libsconce_llvm, if its archives are there" ON)
set(_archives "")
find_library(_zlib NAMES libz.a z libz.so.1)
find_library(_zstd NAMES libzstd.a zstd libzstd.so.1)
mark_as_advanced(_zlib _zstd)
if(SCONCE_LLVM_STATIC AND _zlib AND _zstd)
  execute_process(
    COMMAND "${LLVM_TOOLS_BINARY_DIR}/llvm-config" --link-static --libfiles orcjit native passes
    OUTPUT_VARIABLE _archives OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  separate_arguments(_archives UNIX_COMMAND "${_archives}")
  foreach(_archive IN LISTS _archives)
    if(NOT EXISTS "${_archive}")
      set(_archives "")
      break()
    endif()
  endforeach()
endif()
if(_archives)
  set(_form archives)
  target_link_libraries(Llvm INTERFACE ${_archives} "${_zlib}" "${_zstd}" Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(Llvm INTERFACE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,--gc-sections)
elseif(LLVM_LINK_LLVM_DYLIB)
  set(_form shared)
  target_link_libraries(Llvm INTERFACE LLVM)
else()
  set(_form libraries)
  llvm_map_components_to_libnames(_libraries orcjit native passes)
  target_link_libraries(Llvm INTERFACE ${_libraries})
endif()
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION}, ${_form}: ${LLVM_DIR}")
