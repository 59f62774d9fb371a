# Target Llvm: LLVM 19, for src/fusion/llvm only. Another LLVM 19 than the system's: -DLLVM_DIR=DIR.
find_package(LLVM 19.1 CONFIG)
if(NOT LLVM_FOUND)
  message(FATAL_ERROR "No LLVM 19 found. On Debian: apt-get install llvm-19-dev (tools/setup.sh does "
                      "it). Elsewhere: -DLLVM_DIR=DIR, the folder of LLVMConfig.cmake.")
endif()
message(STATUS "LLVM ${LLVM_PACKAGE_VERSION}: ${LLVM_DIR}")

add_library(Llvm INTERFACE)
target_include_directories(Llvm SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS})
separate_arguments(_definitions UNIX_COMMAND "${LLVM_DEFINITIONS}")
target_compile_options(Llvm INTERFACE ${_definitions} $<$<NOT:$<BOOL:${LLVM_ENABLE_RTTI}>>:-fno-rtti>)
if(LLVM_LINK_LLVM_DYLIB)
  target_link_libraries(Llvm INTERFACE LLVM)
else()
  llvm_map_components_to_libnames(_libraries orcjit native passes)
  target_link_libraries(Llvm INTERFACE ${_libraries})
endif()
