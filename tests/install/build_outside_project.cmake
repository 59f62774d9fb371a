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

step("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${work}/prefix")
step("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${work}/build" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${work}/prefix"
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
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${work}/prefix"
     "-DCMAKE_CXX_FLAGS=-I${work}/own")
step("${CMAKE_COMMAND}" --build "${work}/custom_pass")
set(plugin --pass-plugin "${work}/custom_pass/libcustom_pass.so")
step("${work}/prefix/bin/sconce" passes ${plugin} OUTPUT_VARIABLE listed)
file(WRITE "${work}/silu.ir" [[
graph(%a : Tensor):
  %s : Tensor = aten::sigmoid(%a)
  %m : Tensor = aten::mul(%a, %s)
  return (%m)
]])
step("${work}/prefix/bin/sconce" opt "${work}/silu.ir" --passes use_silu ${plugin} OUTPUT_VARIABLE optimized)
if(NOT listed MATCHES "use_silu" OR NOT optimized MATCHES "aten::silu")
  message(FATAL_ERROR "the example of a plug-in does not work: ${listed}${optimized}")
endif()

# The example of training: a model that Python scripts, trained by a program, read by Python.
if(NOT EXISTS "${PYTHON}")
  message(FATAL_ERROR "${PYTHON} is missing; `make setup` makes it")
endif()
set(example "${SOURCE_DIR}/../../../examples/train_cpp")
step("${CMAKE_COMMAND}" -S "${example}" -B "${work}/train_cpp" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${work}/prefix")
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
