# Target CudaHeaders: CUDA's headers, for src/cuda and what tests it; target NcclHeaders: NCCL's, for src/nccl. Optional:
# without them libsconce_cuda, and libsconce_nccl, are left out. No CUDA library is linked anywhere; driver, runtime and NVRTC are
# opened at run time (the wheel's copies are on the RPATH).
find_path(SCONCE_CUDA_INCLUDE_DIR cuda_runtime_api.h
  HINTS "${SCONCE_LIBTORCH}/../nvidia/cu13/include"  # the wheel's sibling package: fits this LibTorch
        ENV CUDA_HOME ENV CUDA_PATH
  PATH_SUFFIXES include
  DOC "Folder with cuda.h, cuda_runtime_api.h and nvrtc.h")
mark_as_advanced(SCONCE_CUDA_INCLUDE_DIR)

if(SCONCE_CUDA_INCLUDE_DIR)
  cmake_path(NORMAL_PATH SCONCE_CUDA_INCLUDE_DIR)
  message(STATUS "CUDA headers: ${SCONCE_CUDA_INCLUDE_DIR}")
  add_library(CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders INTERFACE "${SCONCE_CUDA_INCLUDE_DIR}")
else()
  message(STATUS "CUDA headers: not found, libsconce_cuda is not built")
endif()

find_path(SCONCE_NCCL_INCLUDE_DIR nccl.h
  HINTS "${SCONCE_LIBTORCH}/../nvidia/nccl/include"  # the same
        ENV NCCL_HOME
  PATH_SUFFIXES include
  DOC "Folder with nccl.h")
mark_as_advanced(SCONCE_NCCL_INCLUDE_DIR)

if(SCONCE_NCCL_INCLUDE_DIR AND TARGET CudaHeaders)
  cmake_path(NORMAL_PATH SCONCE_NCCL_INCLUDE_DIR)
  message(STATUS "NCCL's header: ${SCONCE_NCCL_INCLUDE_DIR}")
  add_library(NcclHeaders INTERFACE IMPORTED)
  target_include_directories(NcclHeaders INTERFACE "${SCONCE_NCCL_INCLUDE_DIR}")
else()
  message(STATUS "NCCL's header: not found, libsconce_nccl is not built")
endif()
