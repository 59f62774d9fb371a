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
