// c10d includes this file of gloo and uses nothing of it.
#pragma once
