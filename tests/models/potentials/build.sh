#!/bin/sh
# Builds the library with the custom class, and the client. TORCH: the folder of the torch package. BUILD: a build of sconce.
set -e
here=$(cd "$(dirname "$0")" && pwd)
BUILD=${BUILD:-$here/../../../build/release}
TORCH=${TORCH:-$(echo "$here"/../../../build/venv/lib/python3*/site-packages/torch)}
includes="-isystem $TORCH/include -isystem $TORCH/include/torch/csrc/api/include"
g++ -O1 -std=c++20 -shared -fPIC "$here/neighbor_list.cpp" $includes -L"$TORCH/lib" -ltorch_cpu -lc10 \
  -Wl,-rpath,"$TORCH/lib" -o "$here/libneighbor_list.so"
g++ -O1 -std=c++20 "$here/client.cpp" -I"$here/../../../include" -I"$BUILD/include" $includes -L"$BUILD/lib" -L"$TORCH/lib" \
  -Wl,--no-as-needed -lsconce -ltorch_cpu -lc10 -Wl,-rpath,"$BUILD/lib:$TORCH/lib" -ldl -pthread -o "$here/client"
