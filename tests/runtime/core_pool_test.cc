// The core pool: every worker once, nesting, many threads at once, scopes.
#include "runtime/core_pool.h"

#include <gmock/gmock.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include "graph/status.h"
#include "graph/tensor.h"
#include "runtime/host_target.h"
#include "tests/support/no_threads.h"
#include "tests/testing.h"

namespace tessera {
namespace {

// Counts calls by worker.
struct Calls {
  explicit Calls(int64_t workers) : count(workers) {}
  static void Fn(void* arg, int64_t worker, int64_t workers) {
    auto& calls = *static_cast<Calls*>(arg);
    EXPECT_EQ(workers, static_cast<int64_t>(calls.count.size()));
    calls.count[worker].fetch_add(1, std::memory_order_relaxed);
  }
  std::vector<std::atomic<int>> count;
};

TEST(CorePool, EveryWorkerOnce) {
  for (int cores : {1, 2, 5}) {
    CorePool pool(cores);
    for (int64_t workers : {0, 1, 2, 3, 5, 8, 64, 1000}) {
      Calls calls(workers);
      pool.Run(&Calls::Fn, &calls, workers);
      for (int64_t w = 0; w < workers; ++w)
        EXPECT_EQ(calls.count[w].load(), 1) << cores << " " << w;
    }
  }
}

// Plain memory: the race detector and the sum both notice a missing hand-over.
TEST(CorePool, ResultsAreVisibleToTheCaller) {
  CorePool pool(4);
  struct Job {
    const std::vector<int64_t>* in;
    int64_t sums[4];
  };
  std::vector<int64_t> values(4096);
  for (int round = 0; round < 2000; ++round) {
    values[round] = round;  // written by the caller, read by the workers
    Job job = {&values, {}};
    pool.Run(
        [](void* arg, int64_t worker, int64_t workers) {
          auto& job = *static_cast<Job*>(arg);
          const int64_t n = job.in->size();
          const auto begin = job.in->begin();
          job.sums[worker] = std::accumulate(begin + n * worker / workers,
                                             begin + n * (worker + 1) / workers, int64_t{0});
        },
        &job, 4);
    ASSERT_EQ(std::accumulate(job.sums, job.sums + 4, int64_t{0}),
              int64_t{round} * (round + 1) / 2);
  }
}

// Worker 0 waits for all others, which one thread more can only do if it takes what is left of the
// caller's share, from its end. (A kernel must not wait like this.)
TEST(CorePool, WhatASlowCoreHasLeftIsTakenFromIt) {
  CorePool pool(2);
  struct Job {
    std::atomic<int> done{0};
    int64_t order[8] = {};
  } job;
  pool.Run(
      [](void* arg, int64_t worker, int64_t workers) {
        auto& job = *static_cast<Job*>(arg);
        if (worker > 0) {
          const int at = job.done.load(std::memory_order_relaxed);  // one thread alone is here
          job.order[at] = worker;
          job.done.store(at + 1);
          return;
        }
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (job.done.load() + 1 < workers && std::chrono::steady_clock::now() < give_up) {
          std::this_thread::yield();
        }
        EXPECT_EQ(job.done.load() + 1, workers);
      },
      &job, 8);
  EXPECT_THAT(job.order, testing::ElementsAre(4, 5, 6, 7, 3, 2, 1, 0));
}

TEST(CorePool, WorkerZeroIsTheCaller) {
  CorePool pool(3);
  for (int round = 0; round < 100; ++round) {
    std::thread::id ids[3];
    pool.Run(
        [](void* arg, int64_t worker, int64_t) {
          static_cast<std::thread::id*>(arg)[worker] = std::this_thread::get_id();
        },
        ids, 3);
    EXPECT_EQ(ids[0], std::this_thread::get_id());
  }
}

// While the caller is held up, somebody else must do the other share.
TEST(CorePool, ThreadsReallyHelp) {
  CorePool pool(2);
  struct Job {
    std::atomic<bool> other_ran{false};
    std::thread::id other;
  } job;
  pool.Run(
      [](void* arg, int64_t worker, int64_t) {
        auto& job = *static_cast<Job*>(arg);
        if (worker == 1) {
          job.other = std::this_thread::get_id();
          job.other_ran.store(true);
          return;
        }
        for (int i = 0; i < 10000 && !job.other_ran.load(); ++i) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
      },
      &job, 2);
  EXPECT_TRUE(job.other_ran.load());
  EXPECT_NE(job.other, std::this_thread::get_id());
}

// A caller that stays on its core finds the pool's threads on others, whichever it is.
TEST(CorePool, ThreadsKeepOffTheCallersCore) {
  cpu_set_t allowed;
  ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed), 0);
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "one core";
  CorePool pool(2);
  struct Seen {
    std::thread::id caller = std::this_thread::get_id();
    int core = -1;
    std::atomic<int> helped{0}, allowed{0};
  };
  const auto look = [](void* arg, int64_t, int64_t) {
    auto& seen = *static_cast<Seen*>(arg);
    if (std::this_thread::get_id() == seen.caller) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the other share is not ours
      return;
    }
    cpu_set_t mine;
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof mine, &mine) == 0, "affinity");
    ++seen.helped;
    seen.allowed += CPU_ISSET(seen.core, &mine) != 0;
  };
  Seen warm;
  warm.core = 0;
  pool.Run(look, &warm, 2);  // starts the thread while all cores are allowed
  int helped = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
    Seen seen;
    seen.core = core;
    pool.Run(look, &seen, 2);
    helped += seen.helped.load();
    EXPECT_EQ(seen.allowed.load(), 0) << core;
  }
  pthread_setaffinity_np(pthread_self(), sizeof allowed, &allowed);
  EXPECT_GT(helped, 0);
}

TEST(CorePool, TheCallerAloneWhereNoThreadStarts) {
  CorePool pool(4);
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, nullptr, &before);
  {
    const NoThreads none;
    Calls calls(100);
    pool.Run(&Calls::Fn, &calls, 100);
    for (const auto& n : calls.count) EXPECT_EQ(n, 1);
  }
  pthread_sigmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
  Calls calls(100);  // with threads again
  pool.Run(&Calls::Fn, &calls, 100);
  for (const auto& n : calls.count) EXPECT_EQ(n, 1);
}

TEST(CorePool, NestedRunsAreSerial) {
  CorePool pool(4);
  struct Job {
    CorePool* pool;
    std::atomic<int> inner{0};
  } job;
  job.pool = &pool;
  pool.Run(
      [](void* arg, int64_t, int64_t) {
        auto& job = *static_cast<Job*>(arg);
        job.pool->Run(
            [](void* arg, int64_t, int64_t) { static_cast<Job*>(arg)->inner.fetch_add(1); }, &job,
            8);
      },
      &job, 6);
  EXPECT_EQ(job.inner.load(), 48);
}

// Eight virtual places on a few cores, with plans that start and end all the time.
TEST(CorePool, ManyThreadsRunPlansAtOnce) {
  CorePool pool(4);
  std::vector<std::thread> places;
  for (int place = 0; place < 8; ++place) {
    places.emplace_back([&pool, place] {
      for (int plan = 0; plan < 20; ++plan) {
        PlanScope scope(pool);
        for (int kernel = 0; kernel < 50; ++kernel) {
          int64_t parts[6] = {};
          int64_t base = place * 1000 + kernel;
          void* args[] = {parts, &base};
          pool.Run(
              [](void* arg, int64_t worker, int64_t) {
                void** args = static_cast<void**>(arg);
                static_cast<int64_t*>(args[0])[worker] = *static_cast<int64_t*>(args[1]) + worker;
              },
              args, 6);
          for (int64_t w = 0; w < 6; ++w) ASSERT_EQ(parts[w], base + w);
        }
      }
    });
  }
  for (std::thread& thread : places) thread.join();
}

// Pauses long enough that the threads go to sleep between kernels, and short ones where they spin.
TEST(CorePool, WakesAfterAnyPause) {
  CorePool pool(3);
  PlanScope scope(pool);
  for (int pause : {0, 1, 50, 99, 100, 101, 300, 2000}) {
    for (int round = 0; round < 20; ++round) {
      Calls calls(3);
      pool.Run(&Calls::Fn, &calls, 3);
      for (auto& count : calls.count) ASSERT_EQ(count.load(), 1);
      if (pause > 0) std::this_thread::sleep_for(std::chrono::microseconds(pause));
    }
  }
}

// How often the calling thread has slept.
int64_t Sleeps() {
  rusage usage;
  CHECK(getrusage(RUSAGE_THREAD, &usage) == 0, "getrusage");
  return usage.ru_nvcsw;
}

// Small plans one after another, as programs run them, find the thread awake: it sleeps only when
// there has been nothing to do for longer than it spins.
TEST(CorePool, ThreadsWaitForThePlanAfterThis) {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kSpin = std::chrono::microseconds(100),
                        kBetween = std::chrono::microseconds(10);
  CorePool pool(2);
  struct Job {
    Clock::time_point ended{};
    int64_t sleeps = 0;
    int soon = 0, slept = 0;
    std::atomic<bool> helped{false};
  } job;
  const auto plan = [&] {
    const PlanScope scope(pool);
    job.helped.store(false);
    pool.Run(
        [](void* arg, int64_t worker, int64_t) {
          auto& job = *static_cast<Job*>(arg);
          if (worker == 0) {  // leaves the other share to the thread
            for (int i = 0; i < 1000000 && !job.helped.load(); ++i) std::this_thread::yield();
            return;
          }
          const bool soon = Clock::now() - job.ended < kSpin;
          job.soon += soon;
          job.slept += soon && Sleeps() > job.sleeps;
          job.sleeps = Sleeps();
          job.ended = Clock::now();
          job.helped.store(true);
        },
        &job, 2);
  };
  for (int i = 0; i < 60; ++i) {
    plan();
    for (const auto begin = Clock::now(); Clock::now() - begin < kBetween;) {
    }
  }
  EXPECT_GT(job.soon, 0);
  EXPECT_EQ(job.slept, 0);
}

// One worker outlasts the caller's spinning, so that the caller sleeps and is woken.
TEST(CorePool, CallerWaitsForALongWorker) {
  CorePool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> ended{0};
    pool.Run(
        [](void* arg, int64_t worker, int64_t) {
          if (worker == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
          static_cast<std::atomic<int>*>(arg)->fetch_add(1);
        },
        &ended, 2);
    EXPECT_EQ(ended.load(), 2);
  }
}

TEST(CorePool, ComesAndGoes) {
  for (int round = 0; round < 50; ++round) {
    CorePool pool(4);
    Calls calls(4);
    if (round % 2 == 0) pool.Run(&Calls::Fn, &calls, 4);
  }
}

// More parts than cores, which take them from one another: each is computed, and as often as asked.
TEST(CorePool, LargeKernelsRunInParts) {
  constexpr int64_t kRows = 2048, kColumns = 512;
  const Tensor x = Tensor::RandInt(-8, 9, {kRows, kColumns}).Cast(kFloat32).Realize();
  const std::vector<float> values = x.ToVector<float>();
  for (int round = 1; round <= 3; ++round) {
    const Tensor sums = (x * round).Sum({1}), scaled = x * round + 1;
    if (HostTarget().cores == 2) {
      EXPECT_THAT(Explain(sums), testing::HasSubstr(" 2/16 "));
    }
    const std::vector<float> sum = sums.ToVector<float>(), all = scaled.ToVector<float>();
    for (int64_t i = 0; i < kRows; ++i) {
      const auto row = values.begin() + i * kColumns;
      EXPECT_EQ(sum[i], std::accumulate(row, row + kColumns, 0.0f) * round) << "row " << i;
      for (int64_t j = 0; j < kColumns; ++j) ASSERT_EQ(all[i * kColumns + j], row[j] * round + 1);
    }
  }
}

TEST(CorePool, GlobalIsAsWideAsTheHost) {
  EXPECT_EQ(CorePool::Global().cores(), HostTarget().cores);
  Calls calls(7);
  CorePool::Global().Run(&Calls::Fn, &calls, 7);
  for (auto& count : calls.count) EXPECT_EQ(count.load(), 1);
}

}  // namespace
}  // namespace tessera
