# See CMakeLists.txt beside this file.
if(NOT EXISTS "${PYTHON}")
  message(FATAL_ERROR "${PYTHON} is missing; `make setup` makes it")
endif()
set(environment "${BUILD_DIR}/python/venv")

macro(step)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY)
endmacro()

# LibTorch's environment lends its packages.
step("${PYTHON}" -c "print(__import__('sysconfig').get_path('purelib'))" OUTPUT_VARIABLE libtorch OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT EXISTS "${environment}/ready")
  file(REMOVE_RECURSE "${environment}")
  step("${PYTHON}" -m venv "${environment}")
  step("${environment}/bin/python" -m pip install --quiet --disable-pip-version-check pytest==8.4.2)
  file(TOUCH "${environment}/ready")
endif()
step("${environment}/bin/python" -c "print(__import__('sysconfig').get_path('purelib'))"
     OUTPUT_VARIABLE site OUTPUT_STRIP_TRAILING_WHITESPACE)
file(WRITE "${site}/libtorch.pth" "${libtorch}\n")
file(REMOVE_RECURSE "${site}/sconce")
step("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --component python --prefix "${site}" OUTPUT_QUIET)
# Away from the sources, whose package has no libraries.
step("${environment}/bin/python" -m pytest -q -W ignore::DeprecationWarning "${TESTS}" WORKING_DIRECTORY "${environment}")
