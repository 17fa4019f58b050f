// A process that can start no more threads, as one that meets its limit of them.
#pragma once

#include <pthread.h>

#include <cstddef>

#include "graph/status.h"

namespace tessera {

// While one lives, threads that ask for no stack of their own size get one that no machine has room
// for.
class NoThreads {
 public:
  NoThreads() {
    CHECK(pthread_getattr_default_np(&before_) == 0);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    CHECK(pthread_attr_setstacksize(&huge, size_t{1} << 50) == 0);
    CHECK(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    CHECK(pthread_setattr_default_np(&before_) == 0);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace tessera
