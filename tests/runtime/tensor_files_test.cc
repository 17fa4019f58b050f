// .npy and safetensors files and DLPack, there and back, and what is malformed.
#include <sys/stat.h>

#include <fstream>
#include <limits>

#include "graph/buffer.h"
#include "graph/tensor_internal.h"
#include "runtime/dlpack.h"
#include "runtime/npy.h"
#include "runtime/safetensors_writer.h"
#include "runtime/sim/sim.h"
#include "runtime/tensor_bytes.h"
#include "runtime/weight_file.h"
#include "tests/graph/tensor_testing.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

constexpr DType kAll[] = {kBool,       kInt8,    kInt16,    kInt32,   kInt64,
                          kUInt8,      kUInt16,  kUInt32,   kUInt64,  kFloat8E4M3,
                          kFloat8E5M2, kFloat16, kBFloat16, kFloat32, kFloat64};

Tensor Sample(DType t, const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  std::vector<double> v(n);
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<double>(i % 7) - (t.IsFloat() ? 3.5 : 0);
  if (t.IsFloat() && n > 2) v[0] = -0.0, v[1] = kNan, v[2] = 1e-3;
  return Tensor::From(v, shape).Cast(t);
}

std::string Path(const std::string& name) { return OwnTempDir() + "/" + name; }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(TensorFiles, NpyThereAndBack) {
  for (DType t : kAll) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {5}, {2, 3}, {0, 4}, {3, 1, 2, 2}}) {
      const Tensor x = Sample(t, shape);
      const std::string path = Path("there.npy");
      if (t == kBFloat16 || t == kFloat8E4M3 || t == kFloat8E5M2) {
        EXPECT_ERROR(SaveNpy(path, x), "SaveNpy", "cast it to f32");
        continue;
      }
      SaveNpy(path, x);
      const Tensor y = LoadNpy(path);
      EXPECT_EQ(y.dtype(), t);
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(BytesOf(y), BytesOf(x)) << t.ToString();
    }
  }
  EXPECT_ERROR(SaveNpy("/nowhere/x.npy", Tensor::Ones({1})), "SaveNpy", "cannot be written");
  EXPECT_ERROR(LoadNpy("/nowhere/x.npy"), "LoadNpy", "/nowhere/x.npy");
}

std::string Npy(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string out = "\x93NUMPY";
  out += major;
  out += '\0';
  for (size_t i = 0; i < (major == 1 ? 2u : 4u); ++i) {
    out += static_cast<char>(dictionary.size() >> (8 * i) & 255);
  }
  return out + dictionary + data;
}

// Byte for byte what numpy.save(f, numpy.array([[1, 2, 3], [4, 5, 6]], '<i2')) wrote (NumPy 1.26).
TEST(TensorFiles, NpyAsNumPyWritesIt) {
  std::string head = "{'descr': '<i2', 'fortran_order': False, 'shape': (2, 3), }";
  head.append(117 - head.size(), ' ');
  head += '\n';
  const std::string data("\1\0\2\0\3\0\4\0\5\0\6\0", 12);
  std::ofstream(Path("numpy.npy"), std::ios::binary) << Npy(head, data);
  EXPECT_THAT(LoadNpy(Path("numpy.npy")).ToVector<int>(), ElementsAre(1, 2, 3, 4, 5, 6));
  // The first axis contiguous, the high byte first, version 2.
  head = "{\"shape\":(3,2),'descr':'>i2','fortran_order':True}";
  const std::string swapped("\0\1\0\2\0\3\0\4\0\5\0\6", 12);
  std::ofstream(Path("order.npy"), std::ios::binary) << Npy(head, swapped, 2);
  EXPECT_THAT(LoadNpy(Path("order.npy")).ToVector<int>(), ElementsAre(1, 4, 2, 5, 3, 6));
  // No order where there is none, or this machine's.
  head = "{'descr': 'u1', 'fortran_order': False, 'shape': (2,), }";
  std::ofstream(Path("bytes.npy"), std::ios::binary) << Npy(head, "\7\x8");
  EXPECT_THAT(LoadNpy(Path("bytes.npy")).ToVector<int>(), ElementsAre(7, 8));
  const std::string saved = [] {
    SaveNpy(Path("saved.npy"), Tensor::From({1, 2, 3}).Cast(kFloat64));
    return Read(Path("saved.npy"));
  }();
  EXPECT_EQ(saved.size(), 128u + 24u);
  EXPECT_NE(saved.find("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"),
            std::string::npos);
  EXPECT_EQ(saved[127], '\n');
}

TEST(TensorFiles, MalformedNpy) {
  const std::string good = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }";
  const std::string data(4, '\1');
  const auto expect = [](const std::string& bytes, const std::string& part) {
    const auto parsed = ParseNpy(bytes, "f.npy");
    EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kDataLoss, part));
    EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kDataLoss, "f.npy: byte"));
  };
  EXPECT_OK(ParseNpy(Npy(good, data), "f.npy"));
  for (size_t n = 0; n < Npy(good, data).size(); ++n) {  // cut short anywhere
    EXPECT_FALSE(ParseNpy(Npy(good, data).substr(0, n), "f.npy").ok()) << n;
  }
  expect("PK\3\4 and more", "no .npy file");
  expect(Npy(good, data, 9), "version 9.0");
  expect(Npy(good, data + "x"), "1 bytes follow");
  expect(Npy(good, "ab"), "the elements");
  const auto with = [&](const std::string& descr, const std::string& shape) {
    return Npy("{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }", data);
  };
  expect(with("'|O'", "(2,)"), "the dtype");
  expect(with("'<f3'", "(2,)"), "the dtype");
  expect(with("'<c8'", "(2,)"), "the dtype");
  expect(with("[('a', '<i2')]", "(2,)"), "records");
  expect(with("'<i2'", "(-2,)"), "the extent");
  expect(with("'<i2'", "(2.5,)"), "in the shape");
  expect(with("'<i2'", "2"), "a ( is missing");
  expect(with("'<i2'", "(99999999999999999999,)"), "the extent");
  expect(with("'<i2'", "(4611686018427387904, 4)"), "do not fit");
  expect(with("'<i2'", "(4611686018427387904, 2)"), "do not fit");
  expect(with("'<i2'", "(2000000000,)"), "takes 4000000000 bytes");
  expect(with("'<i2", "(2,)"), "");
  expect(Npy("{'descr': '<i2', 'shape': (2,)}", data), "'fortran_order' is missing");
  expect(Npy("{'descr': '<i2', 'descr': '<i2'}", data), "doubled");
  expect(Npy("{'evil': __import__('os')}", data), "unknown");
  expect(Npy("{'descr': '<i2', 'fortran_order': 1, 'shape': (2,)}", data),
         "neither True nor False");
  expect(Npy(good + " x", data), "text follows");
  expect(Npy("", data), "a { is missing");
}

TEST(TensorFiles, SafetensorsThereAndBack) {
  std::map<std::string, Tensor> all;
  for (DType t : kAll) all["a \"" + t.ToString() + "\"\n"] = Sample(t, {2, 3});
  all["scalar"] = Tensor::Scalar(2.5);
  all["none"] = Tensor::Zeros({0, 3}, kInt8);
  SaveSafetensors(Path("all.safetensors"), all, {{"format", "pt"}});
  const auto back = LoadSafetensors(Path("all.safetensors"));
  ASSERT_EQ(back.size(), all.size());
  for (const auto& [name, x] : all) {
    ASSERT_TRUE(back.contains(name)) << name;
    EXPECT_EQ(back.at(name).dtype(), x.dtype());
    EXPECT_EQ(back.at(name).shape(), x.shape());
    EXPECT_EQ(BytesOf(back.at(name)), BytesOf(x)) << name;
  }
  SaveSafetensors(Path("none.safetensors"), {});
  EXPECT_TRUE(LoadSafetensors(Path("none.safetensors")).empty());
  EXPECT_ERROR(SaveSafetensors(Path("x"), {{"__metadata__", Tensor::Ones({1})}}), "SaveSafetensors",
               "__metadata__");
  EXPECT_ERROR(SaveSafetensors(Path("x"), {{"\xff", Tensor::Ones({1})}}), "SaveSafetensors",
               "not UTF-8");
  std::ofstream(Path("cut.safetensors"), std::ios::binary)
      << Read(Path("all.safetensors")).substr(0, 300);
  EXPECT_ERROR(LoadSafetensors(Path("cut.safetensors")), "LoadSafetensors", "cut.safetensors");
}

// Whatever the parser takes is a tensor: none is left out.
TEST(TensorFiles, EveryPlainFormatIsADtype) {
#define TESSERA_FORMAT(id, name, number, elements, bytes) WeightFormat::id,
  for (const WeightFormat id : {TESSERA_WEIGHT_FORMATS(TESSERA_FORMAT)}) {
#undef TESSERA_FORMAT
    const WeightFormatInfo& format = InfoOf(id);
    if (format.block_elements != 1) continue;
    const int bytes = format.block_bytes;
    std::string header = absl::StrCat("{\"t\":{\"dtype\":\"", format.name,
                                      "\",\"shape\":[1],\"data_offsets\":[0,", bytes, "]}}");
    header.resize(128, ' ');
    std::ofstream(Path("one.safetensors"), std::ios::binary)
        << char(128) << std::string(7, '\0') << header << std::string(bytes, '\0');
    const auto all = LoadSafetensors(Path("one.safetensors"));
    ASSERT_TRUE(all.contains("t")) << format.name;
    EXPECT_EQ(all.at("t").dtype().bytes(), bytes) << format.name;
  }
}

TEST(TensorFiles, AsManyAxesAsTensorsHave) {
  const Tensor x = Sample(kInt16, {1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 1}),
               most = Tensor::Ones(std::vector<int64_t>(60, 1), kInt8);
  SaveSafetensors(Path("axes.safetensors"), {{"x", x}, {"most", most}});
  const auto back = LoadSafetensors(Path("axes.safetensors"));
  EXPECT_EQ(back.at("x").shape(), x.shape());
  EXPECT_EQ(BytesOf(back.at("x")), BytesOf(x));
  EXPECT_EQ(back.at("most").rank(), 60);
  SaveNpy(Path("axes.npy"), most);
  EXPECT_EQ(LoadNpy(Path("axes.npy")).rank(), 60);
}

TEST(TensorFiles, APipeIsNoFile) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_ERROR(LoadNpy(Path("pipe")), "LoadNpy", "is not a file");
  EXPECT_ERROR(LoadSafetensors(Path("pipe")), "LoadSafetensors", "is not a file");
}

// Kernels rely on bools that are 0 or 1: copies are made so, memory of others is looked at.
TEST(TensorFiles, BytesOfBools) {
  std::vector<uint8_t> bytes = {0, 1, 2, 255, 128, 0};
  const Tensor t = Tensor::FromBytes(bytes.data(), {6}, kBool);
  EXPECT_THAT(BytesOf(t), ElementsAre(0, 1, 1, 1, 1, 0));
  EXPECT_EQ(t.Cast(kInt32).Sum().Item(), 4);
  EXPECT_ERROR(Tensor::FromBlob(bytes.data(), {6}, kBool), "FromBlob",
               "element 2 is the byte 2, and bools are 0 or 1");
  EXPECT_THAT(Tensor::FromBlob(bytes.data(), {2}, kBool).ToVector<int>(), ElementsAre(0, 1));
  EXPECT_EQ(Tensor::FromBlob(nullptr, {0}, kBool).size(0), 0);
}

// ---- DLPack

TEST(Dlpack, OutSharesTheMemory) {
  Tensor x = Sample(kFloat32, {2, 3}).To("CPU").Realize();
  DLManagedTensor* m = ToDlpack(x);
  EXPECT_EQ(m->dl_tensor.data, x.Data<float>());
  EXPECT_EQ(m->dl_tensor.device.device_type, kDLCPU);
  EXPECT_EQ(m->dl_tensor.ndim, 2);
  EXPECT_EQ(m->dl_tensor.shape[1], 3);
  EXPECT_EQ(m->dl_tensor.strides[0], 3);
  EXPECT_EQ(m->dl_tensor.dtype.code, kDLFloat);
  EXPECT_EQ(m->dl_tensor.dtype.bits, 32);
  const float first = x.ToVector<float>()[3];
  x = Tensor();  // the memory stays for those who were given it
  EXPECT_EQ(static_cast<const float*>(m->dl_tensor.data)[3], first);
  m->deleter(m);
  EXPECT_ERROR(ToDlpack(Tensor::Ones({4}).Shard({"CPU:0", "CPU:1"}, 0)), "ToDlpack", "gather it");
}

// Whoever has the memory sees what is assigned, and has it for longer than the tensor lives.
TEST(Dlpack, WhatIsAssignedIsSeenOutside) {
  Tensor x = Tensor::From({1.f, 2.f}).Realize();
  const Tensor before = x + 1;  // reads the old version
  DLManagedTensor* m = ToDlpack(x);
  const auto* const outside = static_cast<const float*>(m->dl_tensor.data);
  x.Assign(x * 10).Realize();
  EXPECT_EQ(outside[1], 20);
  x = Tensor();
  EXPECT_EQ(outside[0], 10);
  EXPECT_THAT(before.ToVector<float>(), ElementsAre(2, 3));
  m->deleter(m);
}

TEST(Dlpack, WhatIsGivenOutIsTheTensorsOwn) {
  const Tensor x = Tensor::From({1.f, 2.f}).Realize();
  Tensor a = x + 1, b = x + 1;
  a.Realize();
  b.Realize();
  DLManagedTensor* m = ToDlpack(b);
  const auto* const outside = static_cast<const float*>(m->dl_tensor.data);
  EXPECT_EQ(b.Data<float>(), outside);
  a.Assign(a * 10);
  a.Realize();
  EXPECT_EQ(outside[0], 2);
  b.Assign(b * 3);
  b.Realize();
  EXPECT_EQ(outside[0], 6);
  EXPECT_THAT(a.ToVector<float>(), ElementsAre(20, 30));
  m->deleter(m);
}

TEST(Dlpack, WhatIsGivenOutIsComputed) {
  Tensor x = (Tensor::Ones({1000}).To("SIM") + 1).Realize();
  const int64_t waits = sim::GetCounts().host_waits;
  EXPECT_ERROR(ToDlpack(x), "ToDlpack", "on SIM, whose memory nobody else can read");
  EXPECT_GT(sim::GetCounts().host_waits, waits);
  // Memory that was not given out after all is nobody else's.
  EXPECT_FALSE(x.uop().arg<BufferArg>().buffer->storage->is_shared);
}

TEST(Dlpack, EveryDtypeThereAndBack) {
  for (DType t : kAll) {
    const Tensor x = Sample(t, {3, 2});
    const Tensor y = FromDlpack(ToDlpack(x));
    EXPECT_EQ(y.dtype(), t);
    EXPECT_EQ(BytesOf(y), BytesOf(x));
  }
  EXPECT_EQ(FromDlpack(ToDlpack(Tensor::Zeros({0, 3}))).shape(), Shape({0, 3}));
  EXPECT_EQ(FromDlpack(ToDlpack(Tensor::Scalar(4))).Item(), 4);
}

// A producer of its own, with strides.
struct Producer {
  std::vector<float> data = {0, 1, 2, 3, 4, 5, 6};
  std::vector<int64_t> shape, strides;
  DLManagedTensor managed;
  int deleted = 0;
  Producer(std::vector<int64_t> of_shape, std::vector<int64_t> of_strides, uint64_t offset = 0)
      : shape(std::move(of_shape)), strides(std::move(of_strides)) {
    managed.dl_tensor = {data.data(),
                         {kDLCPU, 0},
                         static_cast<int32_t>(shape.size()),
                         {kDLFloat, 32, 1},
                         shape.data(),
                         strides.empty() ? nullptr : strides.data(),
                         offset};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* m) { ++static_cast<Producer*>(m->manager_ctx)->deleted; };
  }
};

TEST(Dlpack, InSharesTheMemoryAndGivesItBack) {
  Producer p({2, 3}, {});
  {
    Tensor x = FromDlpack(&p.managed);
    EXPECT_EQ(x.Data<float>(), p.data.data());
    EXPECT_THAT(x.ToVector<int>(), ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_EQ(p.deleted, 0);
  }
  EXPECT_EQ(p.deleted, 1);
  Producer columns({2, 3}, {1, 2}), repeated({2, 3}, {0, 1}, 4), one({1, 3}, {77, 1});
  EXPECT_THAT(FromDlpack(&columns.managed).ToVector<int>(), ElementsAre(0, 2, 4, 1, 3, 5));
  EXPECT_THAT(FromDlpack(&repeated.managed).ToVector<int>(), ElementsAre(1, 2, 3, 1, 2, 3));
  EXPECT_THAT(FromDlpack(&one.managed).ToVector<int>(), ElementsAre(0, 1, 2));
  EXPECT_EQ(columns.deleted + repeated.deleted + one.deleted, 3);
}

TEST(Dlpack, WhatIsRefusedStaysTheCallers) {
  Producer gaps({2, 2}, {3, 1}), reversed({3}, {-1}), negative({-1}, {}), lanes({2}, {}),
      huge({INT64_MAX, 8}, {}), cuda({2}, {}), odd({2}, {}, 2), bools({8}, {});
  bools.managed.dl_tensor.dtype = {kDLBool, 8, 1};  // of which floats have other bytes
  lanes.managed.dl_tensor.dtype.lanes = 2;
  cuda.managed.dl_tensor.device.device_type = kDLCUDA;
  EXPECT_ERROR(FromDlpack(&gaps.managed), "FromDlpack", "make the tensor contiguous");
  EXPECT_ERROR(FromDlpack(&reversed.managed), "FromDlpack", "stride -1");
  EXPECT_ERROR(FromDlpack(&negative.managed), "FromDlpack", "extent -1");
  EXPECT_ERROR(FromDlpack(&lanes.managed), "FromDlpack", "2 lanes");
  EXPECT_ERROR(FromDlpack(&huge.managed), "FromDlpack", "do not fit");
  EXPECT_ERROR(FromDlpack(&cuda.managed), "FromDlpack", "only the CPU's");
  EXPECT_ERROR(FromDlpack(&odd.managed), "FromDlpack", "aligned");
  EXPECT_ERROR(FromDlpack(&bools.managed), "FromDlpack", "element 6 is the byte 128");
  EXPECT_ERROR(FromDlpack(nullptr), "FromDlpack", "null");
  // Of the axes in memory there are as many as a tensor has; with the one that repeats, more.
  std::vector<int64_t> many(61, 1), steps(61, 1);
  many[0] = 2, steps[0] = 0;
  Producer axes(many, steps), nowhere({2}, {}, 4);
  nowhere.managed.dl_tensor.data = nullptr;
  EXPECT_ERROR(FromDlpack(&axes.managed), "FromDlpack", "61 axes, not 0 to 60");
  EXPECT_ERROR(FromDlpack(&nowhere.managed), "FromDlpack", "the pointer is null");
  EXPECT_EQ(axes.deleted + nowhere.deleted, 0);
  for (const Producer* p : {&gaps, &reversed, &negative, &lanes, &huge, &cuda, &odd, &bools}) {
    EXPECT_EQ(p->deleted, 0);
  }
}

}  // namespace
}  // namespace tessera
