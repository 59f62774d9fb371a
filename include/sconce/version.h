// The version of sconce. CMakeLists.txt reads it from here.
#pragma once

#define SCONCE_VERSION "0.1.0"
