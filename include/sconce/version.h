// The version of sconce, read by CMakeLists.txt too.
#pragma once

#define SCONCE_VERSION "0.1.0"
