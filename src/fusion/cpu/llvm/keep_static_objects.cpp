// Static objects of this library, which are LLVM's, are never destroyed: a thread may compile while another one ends the
// process. Here the registration of their destructors ends; the libraries beside this one have the C library's.
extern "C" __attribute__((visibility("hidden"))) int __cxa_atexit(void (* /*destroy*/)(void*), void* /*object*/,
                                                                  void* /*library*/) {
  return 0;
}
