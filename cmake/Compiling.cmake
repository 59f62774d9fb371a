# How sconce's sources are compiled: targets SconceFlags (all code) and SconceTorchCode (code that
# sees LibTorch), the linker, ccache, the sanitizers, the precompiled header.
set(SCONCE_SANITIZE "" CACHE STRING "address, undefined or thread; empty for none")
set_property(CACHE SCONCE_SANITIZE PROPERTY STRINGS "" address undefined thread)
option(SCONCE_DEBUG "Compile SCONCE_DEBUG_ASSERT in, and check libstdc++'s preconditions" OFF)
option(SCONCE_FUZZ "Build the libFuzzer targets of tests/fuzz/libfuzzer, and no other test (Clang)" OFF)
option(SCONCE_PCH "Precompile LibTorch's headers" ON)
option(SCONCE_UNITY "Compile a dozen sources as one: a clean build takes half the time" ON)
option(SCONCE_CCACHE "Use ccache where it is installed" ON)

# ---- flags -------------------------------------------------------------------------------------
add_library(SconceFlags INTERFACE)
target_compile_features(SconceFlags INTERFACE cxx_std_20)
# LibTorch's wheel is built with it, and lays out some classes otherwise without (at::RecordFunction). Sconce's own checks go by
# SCONCE_DEBUG. The release build has it in its flags.
target_compile_definitions(SconceFlags INTERFACE $<$<NOT:$<CONFIG:Release>>:NDEBUG>)
target_include_directories(SconceFlags INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src;${PROJECT_SOURCE_DIR}/include;${PROJECT_BINARY_DIR}/include>")
target_compile_options(SconceFlags INTERFACE
  # For executables too, where CMake would say -fPIE: one precompiled header serves every target.
  -fPIC
  # Calls within a library are direct: nobody replaces one function of it by another of the same name.
  -fno-semantic-interposition
  -Wall -Wextra -Wpedantic $<$<CXX_COMPILER_ID:GNU>:-Werror>
  -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wsuggest-override -Wimplicit-fallthrough
  # Rows of tables name the fields that they have (designated initializers); the rest is the default.
  -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(SconceFlags INTERFACE
    -Wduplicated-cond -Wlogical-op
    # False alarms of GCC 12's middle end in inlined library code: std::string's operator+ (GCC bug
    # 105651), std::vector, std::optional.
    -Wno-restrict
    -Wno-maybe-uninitialized -Wno-array-bounds -Wno-stringop-overflow
    -Wno-stringop-overread -Wno-free-nonheap-object -Wno-dangling-pointer)
endif()
if(SCONCE_DEBUG)
  target_compile_definitions(SconceFlags INTERFACE SCONCE_DEBUG _GLIBCXX_ASSERTIONS)
endif()

# ---- sanitizers --------------------------------------------------------------------------------
# SCONCE_SANITIZER_ENVIRONMENT is for the tests' environment.
set(SCONCE_SANITIZER_ENVIRONMENT "")
set(_suppressions "${PROJECT_SOURCE_DIR}/tests/sanitizers")
if(SCONCE_SANITIZE STREQUAL "address")
  set(_sanitizer -fsanitize=address -fno-omit-frame-pointer)
  set(SCONCE_SANITIZER_ENVIRONMENT
    "ASAN_OPTIONS=detect_stack_use_after_return=1:strict_init_order=1:allocator_may_return_null=1"
    "LSAN_OPTIONS=suppressions=${_suppressions}/lsan.supp:print_suppressions=0")
elseif(SCONCE_SANITIZE STREQUAL "undefined")
  # vptr needs the type information of LibTorch's hidden classes, which its libraries don't export.
  set(_sanitizer -fsanitize=undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  set(SCONCE_SANITIZER_ENVIRONMENT "UBSAN_OPTIONS=print_stacktrace=1")
elseif(SCONCE_SANITIZE STREQUAL "thread")
  # -Wno-tsan: GCC warns about atomic_thread_fence, which libstdc++ and LibTorch's headers use.
  set(_sanitizer -fsanitize=thread -fno-omit-frame-pointer -Wno-tsan)
  # LibTorch and libgomp are not instrumented: their locks and barriers are invisible to TSan.
  set(SCONCE_SANITIZER_ENVIRONMENT
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1:suppressions=${_suppressions}/tsan.supp"
    "OMP_NUM_THREADS=1")
elseif(SCONCE_SANITIZE)
  message(FATAL_ERROR "SCONCE_SANITIZE is '${SCONCE_SANITIZE}'; known: address, undefined, thread")
endif()
if(SCONCE_FUZZ)  # lets libFuzzer see which branches an input took, and finds undefined behavior too
  set(_undefined -fsanitize=undefined -fno-sanitize=vptr,function -fno-sanitize-recover=undefined)
  target_compile_options(SconceFlags INTERFACE -fsanitize=fuzzer-no-link ${_undefined})
  target_link_options(SconceFlags INTERFACE ${_undefined})
endif()
if(SCONCE_SANITIZE)
  target_compile_options(SconceFlags INTERFACE ${_sanitizer})
  target_link_options(SconceFlags INTERFACE ${_sanitizer})
endif()

# ---- linker and ccache -------------------------------------------------------------------------
include(CheckLinkerFlag)
foreach(_linker mold lld)
  check_linker_flag(CXX "-fuse-ld=${_linker}" SCONCE_HAVE_${_linker})
  if(SCONCE_HAVE_${_linker})
    target_link_options(SconceFlags INTERFACE "-fuse-ld=${_linker}")
    break()
  endif()
endforeach()

# What __FILE__ begins with. ccache turns absolute paths into relative ones (CCACHE_BASEDIR).
set(_source_prefix "${PROJECT_SOURCE_DIR}")
find_program(SCONCE_CCACHE_PROGRAM ccache)
mark_as_advanced(SCONCE_CCACHE_PROGRAM)
if(SCONCE_CCACHE AND SCONCE_CCACHE_PROGRAM)
  # A clone at another path, with its own copy of the wheel, hits the cache: paths are made relative,
  # the working directory isn't hashed, and files younger than the compilation are trusted (the
  # precompiled header is). The last two are what ccache's manual asks for with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    "${SCONCE_CCACHE_PROGRAM}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(SconceFlags INTERFACE -fpch-preprocess)
  endif()
  file(RELATIVE_PATH _source_prefix "${CMAKE_BINARY_DIR}" "${PROJECT_SOURCE_DIR}")
  string(REGEX REPLACE "/$" "" _source_prefix "${_source_prefix}")
endif()
# Messages and assertions name src/ir/graph.cpp, wherever the tree lies.
target_compile_options(SconceFlags INTERFACE "-fmacro-prefix-map=${_source_prefix}/=")
# LibTorch's assertions in its headers name them as they are included.
file(RELATIVE_PATH _libtorch_include "${CMAKE_BINARY_DIR}" "${SCONCE_LIBTORCH}/include")
target_compile_options(SconceFlags INTERFACE
  "-fmacro-prefix-map=${SCONCE_LIBTORCH}/include/=" "-fmacro-prefix-map=${_libtorch_include}/=")
if(SCONCE_UNITY)  # CMake's unity sources include absolute paths
  target_compile_options(SconceFlags INTERFACE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
endif()

# ---- code that sees LibTorch -------------------------------------------------------------------
add_library(SconceTorchCode INTERFACE)
target_link_libraries(SconceTorchCode INTERFACE SconceFlags LibTorch::torch_cpu LibTorch::c10)

# One precompiled header for every target of these flags. Measured (GCC 12, -O2, seconds of CPU):
# a file that includes ATen and torch/csrc/jit/ir/ir.h takes 11-20 without it and 4-5 with it, one
# with torch/script.h 23 and 9. Adding torch/script.h here would raise the least cost of *every* file
# from 3.7 to 6.7: GCC instantiates the templates of a precompiled header anew in each file.
file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/precompiled.cpp" CONTENT "")
if(SCONCE_PCH)
  add_library(SconcePch OBJECT "${CMAKE_BINARY_DIR}/precompiled.cpp")
  target_link_libraries(SconcePch PRIVATE SconceTorchCode)
  target_precompile_headers(SconcePch PRIVATE
    <ATen/ATen.h>
    <torch/csrc/jit/api/module.h>
    <torch/csrc/jit/runtime/operator.h>
    <torch/csrc/jit/serialization/import.h>)
endif()

# Target `target` holds code that sees LibTorch. GCC instantiates the same templates of LibTorch in each source that it
# compiles, 4 s each time, so a unity build pays: names in anonymous namespaces are unique within a folder.
function(sconce_torch_code target)
  target_link_libraries(${target} PRIVATE SconceTorchCode)
  if(SCONCE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
  endif()
  if(SCONCE_PCH)
    target_precompile_headers(${target} REUSE_FROM SconcePch)
  endif()
endfunction()
