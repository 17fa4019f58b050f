// tools/bench: the rows it writes.
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/testing.h"
#include "tests/tools/run_tool.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// The rows of these names, from the file that bench wrote.
nlohmann::json Rows(const std::string& names) {
  const std::string path = OwnTempDir() + "/bench_rows.json";
  std::remove(path.c_str());
  const Outcome o = RunTool("bench", "--only " + names + " --json " + path);
  EXPECT_EQ(o.exit, 0) << o.out;
  for (const char* column : {"row", "ours ms", "peer ms", "ratio", "GB/s", "GFLOP/s", "kernels"}) {
    EXPECT_THAT(o.out, HasSubstr(column));
  }
  std::ifstream file(path);
  return nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
}

TEST(Bench, WritesRowsWithEveryField) {
  const nlohmann::json rows = Rows("graph_first_step,graph_cached_step,replay_per_kernel");
  ASSERT_EQ(rows.size(), 3);
  for (const nlohmann::json& row : rows) {
    for (const char* field : {"name", "ratio", "ours_ms", "peer", "peer_ms", "bytes", "flops",
                              "gbps", "gflops", "peak_share", "kernels"}) {
      EXPECT_TRUE(row.contains(field)) << field;
    }
  }
  EXPECT_EQ(rows[0]["name"], "graph_first_step");
  EXPECT_GT(rows[0]["ours_ms"], 0);
  EXPECT_GT(rows[0]["kernels"], 100);
  // A recorded figure is no ratio.
  EXPECT_TRUE(rows[0]["ratio"].is_null());
  EXPECT_TRUE(rows[0]["peer_ms"].is_null());
}

TEST(Bench, TimesTheFirstResultOfAProcess) {
  const nlohmann::json rows = Rows("first_result_cold,first_result_warm");
  ASSERT_EQ(rows.size(), 2);
  EXPECT_GT(rows[0]["ours_ms"], rows[1]["ours_ms"]);
}

TEST(Bench, CompilesAStepForTheCpu) {
  const nlohmann::json rows = Rows("decode_compile_cold,decode_compile_warm");
  ASSERT_EQ(rows.size(), 2);
  EXPECT_GT(rows[0]["ours_ms"], rows[1]["ours_ms"]);
  EXPECT_GT(rows[0]["kernels"], 8);
}

// Where there is no NVRTC the rows say so, without times.
TEST(Bench, CompilesAStepForAGpu) {
  const nlohmann::json rows = Rows("nvrtc_step_cold,nvrtc_step_warm");
  ASSERT_EQ(rows.size(), 2);
  if (rows[0]["ours_ms"].is_null()) GTEST_SKIP() << rows[0]["note"];
  EXPECT_GT(rows[0]["ours_ms"], rows[1]["ours_ms"]);
  EXPECT_EQ(rows[0]["kernels"], rows[1]["kernels"]);
  EXPECT_GT(rows[0]["kernels"], 8);
}

// Gigabytes, checks against references, and peers.
TEST(Bench, MeasuresKernelsBesideTheirPeersSlow) {
  const nlohmann::json rows = Rows("sum,softmax,rmsnorm,elementwise,matmul_f32_1024");
  ASSERT_EQ(rows.size(), 5);
  for (const nlohmann::json& row : rows) {
    EXPECT_GT(row["ours_ms"], 0);
    EXPECT_GT(row["gbps"], 0);
    EXPECT_GT(row["peak_share"], 0);
    EXPECT_NE(row["peer"], "");
    if (!row["ratio"].is_null()) {
      EXPECT_NEAR(row["ratio"].get<double>(),
                  row["peer_ms"].get<double>() / row["ours_ms"].get<double>(), 1e-6);
    }
  }
}

// What a row times is computed as the formats, models and peers have it at the moment.
TEST(Bench, ChecksWhatItTimesSlow) {
  for (const nlohmann::json& row :
       Rows("gemv_f16,gemv_q8_0,gemv_q6_k,gemv_iq4_nl_int8,gemv_q8_0_int8,gemv_q4_0_int8,"
            "gemv_q4_k_int8,gemv_q6_k_int8,cumsum,sort_1m,gather_rows,"
            "scatter_add,histogram,transpose,layernorm")) {
    EXPECT_GT(row["ours_ms"], 0) << row["name"];
  }
}

TEST(Bench, RejectsUnknownRowsAndFlags) {
  EXPECT_EQ(RunTool("bench", "--only nosuch").exit, 2);
  EXPECT_EQ(RunTool("bench", "--nosuch").exit, 2);
}

}  // namespace
}  // namespace tessera
