# The preset gpu-carry: lays out what tools/gpu_check/run.sh needs, stripped, in build/gpu-carry, so that the folder can be
# carried to a machine with a GPU. LibTorch is not part of it: the launcher finds it there.
set(SCONCE_CARRY_DIR "${PROJECT_SOURCE_DIR}/build/gpu-carry")

# At the end of the configuration, when all targets are known.
function(sconce_lay_out_carry)
  set(commands "")
  set(depends "")
  macro(carry target folder)
    if(TARGET ${target})
      list(APPEND depends ${target})
      list(APPEND commands
        COMMAND "${CMAKE_COMMAND}" -E make_directory "${SCONCE_CARRY_DIR}/${folder}"
        COMMAND "${CMAKE_STRIP}" -o "${SCONCE_CARRY_DIR}/${folder}/$<TARGET_FILE_NAME:${target}>" "$<TARGET_FILE:${target}>")
    endif()
  endmacro()
  carry(sconce lib)
  carry(sconce_cuda lib)
  carry(sconce_nccl lib)
  carry(sconce_tool bin)
  carry(gpu_check_tool bin)
  carry(gpu_test tests)
  # Libraries of this system that the other machine may lack, under the names that the linker looks for. Not LLVM, which is
  # larger than all that may be carried: kernels of a GPU do without.
  foreach(library TBB::tbb)
    if(TARGET ${library})
      list(APPEND commands
        COMMAND "${CMAKE_STRIP}" -o "${SCONCE_CARRY_DIR}/lib/$<TARGET_SONAME_FILE_NAME:${library}>" "$<TARGET_FILE:${library}>")
    endif()
  endforeach()
  add_custom_target(carry ALL
    COMMAND "${CMAKE_COMMAND}" -E rm -rf "${SCONCE_CARRY_DIR}"
    ${commands}
    COMMAND "${CMAKE_COMMAND}" -D "from=${PROJECT_SOURCE_DIR}/build/models" -D "to=${SCONCE_CARRY_DIR}/models"
            -P "${PROJECT_SOURCE_DIR}/cmake/CarryModels.cmake"
    DEPENDS ${depends} VERBATIM
    COMMENT "Laying out build/gpu-carry")
endfunction()
cmake_language(DEFER DIRECTORY "${PROJECT_SOURCE_DIR}" CALL sconce_lay_out_carry)
