# See CMakeLists.txt beside this file. A user's steps, each checked.
set(work "${BUILD_DIR}/outside_project")
file(REMOVE_RECURSE "${work}")

function(step)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

if(NOT EXISTS "${MODEL}.pt")
  message(FATAL_ERROR "${MODEL}.pt is missing; `make models` writes it")
endif()
step("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${work}/prefix")
step("${CMAKE_COMMAND}" -S "${SOURCE_DIR}" -B "${work}/build" -G "${GENERATOR}"
     "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_COMPILER=${COMPILER}"
     "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCMAKE_PREFIX_PATH=${work}/prefix")
step("${CMAKE_COMMAND}" --build "${work}/build")
step("${work}/build/outside_project" "${MODEL}.pt" "${MODEL}.cases.pt")
