# See CMakeLists.txt beside this file. A user's steps, each checked.
set(work "${BUILD_DIR}/outside_project")
file(REMOVE_RECURSE "${work}")

# A list, which does not survive as an argument of a step.
set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")

macro(step)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endmacro()

if(NOT EXISTS "${MODEL}.pt")
  message(FATAL_ERROR "${MODEL}.pt is missing; `make models` writes it")
endif()

# README's example: its #include lines, and the rest inside of main().
file(READ "${README}" readme)
string(FIND "${readme}" "```cpp\n" begin)
string(SUBSTRING "${readme}" ${begin} -1 readme)
string(FIND "${readme}" "\n```\n" end)
if(begin EQUAL -1 OR end EQUAL -1)
  message(FATAL_ERROR "${README} has no C++ example")
endif()
string(SUBSTRING "${readme}" 0 ${end} example)
string(REPLACE "```cpp\n" "" example "${example}")
string(REGEX REPLACE "(^|\n)#include [^\n]*" "" statements "${example}")
string(REGEX MATCHALL "#include [^\n]*\n" includes "${example}")
list(JOIN includes "" includes)
file(WRITE "${work}/readme.cpp" "${includes}\nint main() {\n${statements}\n}\n")

# The archive, unpacked and moved. It names no folder of the build.
cmake_path(GET CMAKE_COMMAND PARENT_PATH cmake_bin)
step("${cmake_bin}/cpack" --config "${BUILD_DIR}/CPackConfig.cmake" -B "${work}/archive" OUTPUT_QUIET)
file(GLOB archive "${work}/archive/*.tar.gz")
file(ARCHIVE_EXTRACT INPUT "${archive}" DESTINATION "${work}/unpacked")
file(GLOB unpacked "${work}/unpacked/*")
set(root "${work}/root")
set(prefix "${root}/opt/moved")
file(MAKE_DIRECTORY "${root}/opt")
file(RENAME "${unpacked}" "${prefix}")
cmake_path(GET SOURCE_DIR PARENT_PATH repository)  # …/tests/install
cmake_path(GET repository PARENT_PATH repository)
cmake_path(GET repository PARENT_PATH repository)
execute_process(COMMAND grep --recursive --text --fixed-strings --files-with-matches
  -e "${repository}" -e "${BUILD_DIR}" -e "${LIBTORCH}" "${prefix}" OUTPUT_VARIABLE named)
if(named)
  message(FATAL_ERROR "files of the archive name folders of the build:\n${named}")
endif()
if(EXISTS "${prefix}/libtorch" OR NOT EXISTS "${prefix}/share/doc/sconce/licenses/LICENSE")
  message(FATAL_ERROR "the archive should have licenses, and no LibTorch")
endif()
# Without a LibTorch, and with another version, find_package says so in one line.
file(WRITE "${work}/old/lib/libtorch_cpu.so" "")
file(WRITE "${work}/old/include/torch/csrc/api/include/torch/version.h" "#define TORCH_VERSION \"2.4.1\"\n")
foreach(libtorch "" "${work}/old")
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env --unset=SCONCE_LIBTORCH_DIR
    "${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${work}/without" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    "-DCMAKE_PREFIX_PATH=${prefix}" "-DSCONCE_LIBTORCH_DIR=${libtorch}"
    RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE error)
  string(REGEX REPLACE "[ \n]+" " " error "${error}")
  set(expected "No LibTorch found")
  if(libtorch)
    set(expected "has 2.4.1. sconce needs exactly")
  endif()
  if(code EQUAL 0 OR NOT error MATCHES "${expected}")
    message(FATAL_ERROR "find_package should say '${expected}', but: ${error}")
  endif()
endforeach()
file(CREATE_LINK "${LIBTORCH}" "${prefix}/libtorch" SYMBOLIC)
step("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${work}/build" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix}"
     "-DREADME_EXAMPLE=${work}/readme.cpp")
step("${CMAKE_COMMAND}" --build "${work}/build")
step("${work}/build/outside_project" "${MODEL}.pt" "${MODEL}.cases.pt")

# The example reads "model.pt", an image model.
cmake_path(GET MODEL PARENT_PATH models)
file(COPY_FILE "${models}/resnet18.pt" "${work}/model.pt")
step("${work}/build/readme_example" WORKING_DIRECTORY "${work}" OUTPUT_VARIABLE shown)
if(NOT shown MATCHES "aten::conv2d")
  message(FATAL_ERROR "README's example should print the steps of the plan, but prints: ${shown}")
endif()

# The example of a plug-in: built against what was installed, listed, and seen in a model's plan. Beside a header of the
# user's own that has a name of sconce's.
file(WRITE "${work}/own/ir/graph.h" "#error this header is the user's own\n")
step("${CMAKE_COMMAND}" -S "${SOURCE_DIR}/../../../examples/custom_pass" -B "${work}/custom_pass" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix}"
     "-DCMAKE_CXX_FLAGS=-I${work}/own")
step("${CMAKE_COMMAND}" --build "${work}/custom_pass")
set(plugin --pass-plugin "${work}/custom_pass/libcustom_pass.so")
step("${prefix}/bin/sconce" passes ${plugin} OUTPUT_VARIABLE listed)
file(WRITE "${work}/silu.ir" [[
graph(%a : Tensor):
  %s : Tensor = aten::sigmoid(%a)
  %m : Tensor = aten::mul(%a, %s)
  return (%m)
]])
step("${prefix}/bin/sconce" opt "${work}/silu.ir" --passes use_silu ${plugin} OUTPUT_VARIABLE optimized)
if(NOT listed MATCHES "use_silu" OR NOT optimized MATCHES "aten::silu")
  message(FATAL_ERROR "the example of a plug-in does not work: ${listed}${optimized}")
endif()

# The example of graphs.
step("${CMAKE_COMMAND}" -S "${SOURCE_DIR}/../../../examples/graph_api" -B "${work}/graph_api" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix}")
step("${CMAKE_COMMAND}" --build "${work}/graph_api")
step("${work}/graph_api/graph_api" OUTPUT_VARIABLE shown)
if(NOT shown MATCHES "prim::If" OR NOT shown MATCHES "3 operators\n1.5\n6\n0\n")
  message(FATAL_ERROR "the example of graphs does not work: ${shown}")
endif()

# The example of training: a model that Python scripts, trained by a program, read by Python.
if(NOT EXISTS "${PYTHON}")
  message(FATAL_ERROR "${PYTHON} is missing; `make setup` makes it")
endif()
set(example "${SOURCE_DIR}/../../../examples/train_cpp")
step("${CMAKE_COMMAND}" -S "${example}" -B "${work}/train_cpp" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix}")
step("${CMAKE_COMMAND}" --build "${work}/train_cpp")
step("${PYTHON}" "${example}/model.py" "${work}/spirals.pt")
step("${work}/train_cpp/train_cpp" "${work}/spirals.pt" "${work}/trained.pt" 60 OUTPUT_VARIABLE shown)
step("${PYTHON}" "${example}/model.py" --evaluate "${work}/spirals.pt" OUTPUT_VARIABLE before)
step("${PYTHON}" "${example}/model.py" --evaluate "${work}/trained.pt" OUTPUT_VARIABLE after)
if(NOT shown MATCHES "960 steps" OR before MATCHES "^(9[0-9]|100)" OR NOT after MATCHES "^(9[5-9]|100)")
  message(FATAL_ERROR "the example of training does not work: ${shown}before: ${before}after: ${after}")
endif()
# Its errors are one line, before anything is trained.
foreach(arguments "${work}/missing.pt;${work}/other.pt" "${work}/spirals.pt;${work}/no_folder/trained.pt" "${work}/spirals.pt;${work}")
  execute_process(COMMAND "${work}/train_cpp/train_cpp" ${arguments} RESULT_VARIABLE code ERROR_VARIABLE error OUTPUT_VARIABLE shown)
  if(NOT code EQUAL 1 OR NOT error MATCHES "^[^\n]*error: [^\n]*(no such file|cannot be written)[^\n]*\n$" OR shown)
    message(FATAL_ERROR "the example of training should end with one line for ${arguments}, but: ${code} ${shown}${error}")
  endif()
endforeach()

# ---- shipping: the moved tree, a program and LibTorch, in a root that has nothing else -----------
step("${CMAKE_COMMAND}" --install "${work}/build" --prefix "${prefix}")
execute_process(COMMAND ldd "${prefix}/bin/sconce" "${prefix}/bin/outside_project" "${prefix}/lib/libsconce_llvm.so"
  OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "/[^ \n:]+" libraries "${needed}")
list(REMOVE_DUPLICATES libraries)
list(FILTER libraries EXCLUDE REGEX "/moved/((bin/\\.\\./)?lib/|bin/[a-z_]+$)")  # they are in place
set(files "")
foreach(library IN LISTS libraries)
  # CMake's REAL_PATH takes `..` for the folder that is named before it, which is a link here.
  step(realpath "${library}" OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND files "${file}")
endforeach()
file(REMOVE "${prefix}/libtorch")
set(of_the_system "")
foreach(library file IN ZIP_LISTS libraries files)
  cmake_path(GET library FILENAME name)
  if(library MATCHES "/nvidia/")  # of a LibTorch with CUDA
    set(destination "${prefix}/nvidia/cu13/lib")
  elseif(library MATCHES "/libtorch/")
    set(destination "${prefix}/libtorch/lib")
  else()
    cmake_path(GET library PARENT_PATH destination)
    string(PREPEND destination "${root}")
    list(APPEND of_the_system "${name}")
  endif()
  file(MAKE_DIRECTORY "${destination}")
  if(NOT EXISTS "${destination}/${name}")
    file(CREATE_LINK "${file}" "${destination}/${name}" COPY_ON_ERROR)
  endif()
endforeach()
foreach(name IN LISTS of_the_system)
  if(NOT name MATCHES "^(ld-linux-x86-64|lib(c|m|dl|rt|util|pthread|gcc_s|stdc\\+\\+))\\.so\\.[0-9]+$")
    message(FATAL_ERROR "docs/deploying.md does not say that a system must have ${name}")
  endif()
endforeach()
foreach(file "${MODEL}.pt" "${MODEL}.cases.pt")
  cmake_path(GET file FILENAME name)
  file(CREATE_LINK "${file}" "${root}/${name}" COPY_ON_ERROR)
endforeach()
cmake_path(GET MODEL FILENAME name)

# As a container has them: programs find what lies beside them by /proc, and LibTorch its first seed in /dev.
file(MAKE_DIRECTORY "${root}/proc" "${root}/dev" "${root}/tmp")
set(in_root unshare --map-root-user --mount sh -c
  "mount --rbind /proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"" "${root}")
execute_process(COMMAND ${in_root} /opt/moved/bin/sconce --version RESULT_VARIABLE code ERROR_VARIABLE error OUTPUT_VARIABLE shown)
if(error MATCHES "unshare failed|[Oo]peration not permitted|[Pp]ermission denied")
  message(NOTICE "no namespace can be made here (${error}): the moved tree runs in this root")
  set(in_root env -i)
  set(opt "${root}/opt")
  set(models "${root}")
elseif(NOT code EQUAL 0 OR NOT shown MATCHES "kernels: available")
  message(FATAL_ERROR "sconce --version in an empty root: ${code} ${error}${shown}")
else()
  set(opt /opt)
  set(models "")
endif()
step(${in_root} "${opt}/moved/bin/sconce" check "${models}/${name}.pt" "${models}/${name}.cases.pt" OUTPUT_VARIABLE shown)
step(${in_root} "${opt}/moved/bin/outside_project" "${models}/${name}.pt" "${models}/${name}.cases.pt")
