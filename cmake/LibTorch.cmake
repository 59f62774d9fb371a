# Imported targets for LibTorch: LibTorch::c10, torch_cpu, c10_cuda, torch_cuda. Also installed, for
# sconceConfig.cmake.
#
# Why not find_package(Torch): it demands a CUDA toolkit (the wheel brings the run-time libraries
# but no nvcc), and its architecture probe fails under CMake 3.25.
#
# Where LibTorch is, first hit wins: the CMake variable SCONCE_LIBTORCH_DIR, the environment
# variable of that name, the LibTorch that find_package(Torch) has found, `SCONCE_LIBTORCH_DEFAULT`
# (set by the including file; may be a glob).
#
# Sets SCONCE_LIBTORCH (the folder) and SCONCE_LIBTORCH_RUNTIME_DIRS (for RPATHs, and so for the
# libraries that sconce opens at run time). Where there is none, or another version, sets
# SCONCE_LIBTORCH_ERROR alone, to one line.
include_guard(GLOBAL)

# sconce uses interfaces of LibTorch that change from version to version: no range is accepted. See
# docs/libtorch_versions.md before you set another one.
if(NOT DEFINED SCONCE_LIBTORCH_VERSION)
  set(SCONCE_LIBTORCH_VERSION 2.11.0)
endif()
set(SCONCE_LIBTORCH_DIR "" CACHE PATH "LibTorch ${SCONCE_LIBTORCH_VERSION}: the folder with include/ and lib/")

if(SCONCE_LIBTORCH_DIR)
  set(SCONCE_LIBTORCH "${SCONCE_LIBTORCH_DIR}")
elseif(NOT "$ENV{SCONCE_LIBTORCH_DIR}" STREQUAL "")
  set(SCONCE_LIBTORCH "$ENV{SCONCE_LIBTORCH_DIR}")
elseif(TORCH_INSTALL_PREFIX)
  set(SCONCE_LIBTORCH "${TORCH_INSTALL_PREFIX}")
else()
  file(GLOB _found "${SCONCE_LIBTORCH_DEFAULT}")
  list(POP_FRONT _found SCONCE_LIBTORCH)
endif()

set(_version "an unknown version")
foreach(_header headeronly/version.h csrc/api/include/torch/version.h)  # the second one: before 2.9
  if(EXISTS "${SCONCE_LIBTORCH}/include/torch/${_header}")
    file(STRINGS "${SCONCE_LIBTORCH}/include/torch/${_header}" _lines REGEX [["[0-9.]+"]])
    if(_lines MATCHES [["([0-9.]+)"]])
      set(_version "${CMAKE_MATCH_1}")
      break()
    endif()
  endif()
endforeach()
if(NOT SCONCE_LIBTORCH OR NOT EXISTS "${SCONCE_LIBTORCH}/lib/libtorch_cpu.so")
  set(SCONCE_LIBTORCH_ERROR "No LibTorch found in '${SCONCE_LIBTORCH}'")
elseif(NOT _version STREQUAL SCONCE_LIBTORCH_VERSION)
  set(SCONCE_LIBTORCH_ERROR "LibTorch in '${SCONCE_LIBTORCH}' has ${_version}; sconce needs exactly ${SCONCE_LIBTORCH_VERSION}")
endif()
if(SCONCE_LIBTORCH_ERROR)
  string(APPEND SCONCE_LIBTORCH_ERROR ". Set -DSCONCE_LIBTORCH_DIR=DIR, or the environment variable, to the folder of LibTorch "
         "${SCONCE_LIBTORCH_VERSION} that holds include/ and lib/; in a Python installation it is site-packages/torch.")
  return()
endif()
message(STATUS "LibTorch ${_version}: ${SCONCE_LIBTORCH}")

# A wheel keeps CUDA's run-time libraries in sibling packages.
file(GLOB _nvidia_dirs LIST_DIRECTORIES true "${SCONCE_LIBTORCH}/../nvidia/*/lib")
set(SCONCE_LIBTORCH_RUNTIME_DIRS "${SCONCE_LIBTORCH}/lib")
foreach(_dir IN LISTS _nvidia_dirs)
  cmake_path(NORMAL_PATH _dir)
  list(APPEND SCONCE_LIBTORCH_RUNTIME_DIRS "${_dir}")
endforeach()

foreach(_library c10 torch_cpu c10_cuda torch_cuda)
  if(TARGET LibTorch::${_library} OR NOT EXISTS "${SCONCE_LIBTORCH}/lib/lib${_library}.so")
    continue()
  endif()
  add_library(LibTorch::${_library} SHARED IMPORTED)
  set_target_properties(LibTorch::${_library} PROPERTIES
    IMPORTED_LOCATION "${SCONCE_LIBTORCH}/lib/lib${_library}.so"
    INTERFACE_INCLUDE_DIRECTORIES  # imported targets' headers count as SYSTEM: no warnings from them
      "${SCONCE_LIBTORCH}/include;${SCONCE_LIBTORCH}/include/torch/csrc/api/include")
endforeach()

# at::parallel_for is an inline template: compiled without -fopenmp it silently runs serially.
# The OpenMP runtime must be the one that LibTorch uses, so link the one beside it; Clang would bring
# its own as a second one (it serves the fuzzers only, serial is fine there).
file(GLOB _found "${SCONCE_LIBTORCH}/lib/libgomp*.so*")
list(POP_FRONT _found _gomp)
if(NOT _gomp)
  set(_gomp gomp)
endif()
target_compile_definitions(LibTorch::c10 INTERFACE _GLIBCXX_USE_CXX11_ABI=1)
target_compile_options(LibTorch::c10 INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fopenmp>)
target_link_libraries(LibTorch::c10 INTERFACE "${_gomp}")
# Operators register themselves when the library is loaded: the linker must not drop it as unused.
target_link_options(LibTorch::torch_cpu INTERFACE LINKER:--no-as-needed)
target_link_libraries(LibTorch::torch_cpu INTERFACE LibTorch::c10)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # How this LibTorch was compiled. ATen/native/DispatchStub.h declares its per-CPU members by these.
  target_compile_definitions(LibTorch::torch_cpu INTERFACE
    HAVE_AVX2_CPU_DEFINITION HAVE_AVX512_CPU_DEFINITION)
endif()
if(TARGET LibTorch::torch_cuda)
  target_link_libraries(LibTorch::c10_cuda INTERFACE LibTorch::c10)
  target_link_libraries(LibTorch::torch_cuda INTERFACE LibTorch::c10_cuda LibTorch::torch_cpu)
endif()
