// Signals: PyTorch's spectra, SciPy's cosine transforms, torchaudio's filters and rates; and
// errors.
#include "graph/signals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "graph/grad.h"
#include "tests/graph/tensor_testing.h"
#include "tests/support/waves.h"

namespace tessera {
namespace {

using Values = std::vector<double>;

Tensor Signals() {
  return Waves({2, 24}) + (Tensor::Arange(48, kFloat64).Pow(1.3).Cos() * 0.1).Reshape({2, 24});
}
StftOptions Eight(int64_t hop) {
  return {.size = 8, .hop = hop, .window = Tensor::HannWindow(8, true, kFloat64)};
}

StftOptions OddPieces() {
  return {.size = 9,
          .hop = 4,
          .window = Tensor::HammingWindow(6, true, kFloat64),
          .center = false,
          .normalized = true};
}

// torch.stft(x, 8, 2, window=torch.hann_window(8), return_complex=True)
TEST(Signals, Stft) {
  const Tensor z = Stft(Signals(), Eight(2));
  EXPECT_EQ(z.shape(), Shape({2, 5, 13, 2}));
  ExpectNear(Computed((z.Select(-1, 0) * Waves({2, 5, 13})).Sum()), {0.4628849312435023}, 1e-12);
  ExpectNear(Computed((z.Select(-1, 1) * (Waves({2, 5, 13}) + 0.3)).Sum()), {-4.120720379983419},
             1e-12);
  ExpectNear(
      Computed(z[{0, Slice(), 1}]),
      {2.5100194754036336, 0, -1.7855512739157724, 0.12356877113571157, 0.6413632382309942,
       -0.25407004824501545, -0.029746130245874802, -0.20900215656394744, -0.1621511435423273, 0},
      1e-13);
  ExpectNear(Computed(Istft(z, Eight(2))), Computed(Signals()), 1e-13);
  // torch.stft(x, 9, 4, 6, window=torch.hamming_window(6), center=False, normalized=True)
  const Tensor odd = Stft(Signals(), OddPieces());
  EXPECT_EQ(odd.shape(), Shape({2, 5, 4, 2}));
  ExpectNear(Computed(odd[{1, Slice(), 2}]),
             {0.029105073831918522, 0, -0.19770102015379548, 0.3853054507897721, 0.2572993793670174,
              -0.24408095379677752, -0.05726829840215464, 0.03394700583396071, -0.01688259772702655,
              0.03222423490197475},
             1e-13);
  EXPECT_EQ(Stft(Waves({24}), {.size = 8}).shape(), Shape({5, 13, 2}));
}

// Of spectra that are no signal's: what pieces have is weighed.
TEST(Signals, Istft) {
  StftOptions o = Eight(3);
  o.padding = PadMode::kConstant;
  const Tensor z = Stft(Signals(), o) * Tensor::Arange(1, 6).Reshape({5, 1, 1});
  EXPECT_EQ(Istft(z, o).shape(), Shape({2, 24}));
  EXPECT_EQ(Istft(z, o, 30).shape(), Shape({2, 30}));
  ExpectNear(Computed(Istft(z, o, 20).Select(0, 0)),
             {-0.2708974806704151, 1.3207907614518954,  1.5709028428179077,   1.4601759629952138,
              0.932534829237557,   -0.7044527954010554, -1.910555921253345,   -1.4491893052856102,
              -1.5161713611239733, 0.08435443927372482, 1.46163497469142,     1.4953638462099919,
              2.059499560246111,   0.11448080922198615, -0.24888793181607738, -2.0072080485223287,
              -1.557926515672929,  -1.4331451358422433, 0.2619783873640466,   1.0959642358543935},
             1e-13);
  // The derivative goes through pieces that overlap, of any hop; a long piece is few terms.
  for (const int64_t hop : {1, 3, 10, 40, 50}) {
    SCOPED_TRACE(hop);
    const StftOptions of_40{.size = 40, .hop = hop, .center = false};
    const Tensor x = Waves({1, 203}), w = Waves({40});
    Tensor pieces = x.Unfold(-1, 40, hop) * w;
    Values want(203);
    const int64_t count = pieces.size(1);
    const Values weights = Computed(w);
    for (int64_t p = 0; p < count; ++p) {
      for (int64_t i = 0; i < 40; ++i) want[p * hop + i] += weights[i];
    }
    ExpectNear(Computed(Grad(pieces.Sum(), {x})[0]), want, 1e-12);
    const Tensor back = Istft(Stft(x, of_40), of_40);
    const Values got = Computed(back), sent = Computed(x);
    for (size_t i = 0; i < got.size(); ++i) {
      if (hop == 50 && i % 50 >= 40) continue;  // no piece has it
      EXPECT_NEAR(got[i], sent[i], 1e-12) << i;
    }
  }
}

TEST(Signals, Spectrograms) {
  ExpectNear(Computed(Spectrogram(Signals(), OddPieces(), 1)[{0, Slice(), 0}]),
             {0.27165275007018913, 0.4563785241330625, 0.38295081490127936, 0.14660988823566365,
              0.02736438452737205},
             1e-13);
  const MelOptions mel{.mels = 3, .rate = 8000};
  const Tensor power = Spectrogram(Signals(), Eight(2)),
               mels = MelSpectrogram(Signals(), Eight(2), mel);
  EXPECT_EQ(mels.shape(), Shape({2, 3, 13}));
  ExpectNear(Computed(mels), Computed(MelFilters(5, mel, kFloat64).Transpose().MatMul(power)),
             1e-13);
  // torchaudio.functional.melscale_fbanks
  ExpectNear(Computed(MelFilters(6, {.mels = 3, .rate = 8000, .low = 100, .high = 3500}, kFloat64)),
             {0, 0, 0, 0.5353580006119498, 0.46464199938805023, 0, 0, 0.5040824546222642,
              0.49591754537773586, 0, 0, 0.771744620546272, 0, 0, 0.21047580560352872, 0, 0, 0},
             1e-12);
  const MelOptions slaney{.mels = 3, .rate = 8000, .scale = MelScale::kSlaney, .equal_areas = true};
  ExpectNear(
      Computed(MelFilters(6, slaney, kFloat64)),
      {0, 0, 0, 0.0010855974371500193, 0.0004398314525049963, 0, 0, 0.0007385934905391667,
       0.0002917475609563498, 0, 0, 0.0006285966704099242, 0, 0, 0.0003142983352049621, 0, 0, 0},
      1e-12);
  const Tensor x = Tensor::From({{1., 100.}, {1e-3, 0.}}).Cast(kFloat64);
  ExpectNear(Computed(AmplitudeToDb(x)), {0, 20, -30, -100}, 1e-6);
  ExpectNear(Computed(AmplitudeToDb(x, 20, 10, 1e-5, 80)), {-20, 20, -60, -60}, 1e-6);
  EXPECT_EQ(Computed(AmplitudeToDb(Tensor::Scalar(10.), 10, 1, 1e-10, 5)), Values{10});
}

// scipy.fft.dct and idct
TEST(Signals, CosineTransforms) {
  ExpectNear(Computed(Dct(Waves({2, 5}))),
             {5.65572986806186, -0.8946254852401747, -2.360518402059229, 0.022744738728094127,
              -0.2611346861478583, -5.638528700231024, -0.9817116187915249, 2.3533391919221094,
              0.024958795209989226, 0.2603404789159589},
             1e-13);
  ExpectNear(Computed(Dct(Waves({2, 5}), 0, "ortho")),
             {-0.2480411990258349, -0.16076644378546526, 0.0021192820121865453, 0.16400827636481233,
              0.2487616156430574, 0.24804119902583488, 1.0718278341976366, 1.3915170911743984,
              1.0567541171175148, 0.22498316954169845},
             1e-13);
  ExpectNear(Computed(Idct(Waves({5}))),
             {0.40416635493844044, -0.20356621146262713, -0.13009231596651102,
              -0.026646516560969388, -0.0438613109483329},
             1e-13);
  ExpectNear(Computed(Idct(Waves({5}), -1, "ortho")),
             {1.2780862352135143, -0.643732882873378, -0.4113880245404639, -0.08426368404206025,
              -0.1387016437576119},
             1e-13);
  const Tensor x = Waves({3, 7, 2});
  ExpectNear(Computed(Idct(Dct(x, 1), 1)), Computed(x), 1e-13);
  EXPECT_ERROR(Dct(x, 1, "forward"), "Dct", "backward or ortho");
  EXPECT_ERROR(Idct(Tensor::Zeros({2, 0})), "Idct", "of nothing");
}

TEST(Signals, Resample) {
  const Tensor down = Resample(Signals(), 6, 4);
  EXPECT_EQ(down.shape(), Shape({2, 16}));
  ExpectNear(Computed(down.Select(0, 1)),
             {-0.7468514744284842, -0.8916891189717034, 0.07489695223948019, 0.8797459007304321,
              0.8427582593528394, -0.06172738866259228, -0.8940683804322875, -0.8328610724962895,
              0.06436432918538998, 0.9069803924670258, 0.8158122116676134, -0.05870020230063613,
              -0.9259555582774561, -0.7911393175958285, 0.03777312326031987, 0.9797113663260598},
             1e-12);
  const Tensor up = Resample(Signals(), 2, 5, 4, 0.9);
  EXPECT_EQ(up.shape(), Shape({2, 60}));
  ExpectNear(Computed(up[{0, Slice{0, 10}}]),
             {0.11719162666424002, 0.32514583861524654, 0.5702896112745242, 0.7736142159528534,
              0.8866181313124836, 0.9128484266469069, 0.891842929500111, 0.8466171143146852,
              0.7702719805486122, 0.638186452245636},
             1e-12);
  EXPECT_EQ(Computed(Resample(Signals(), 3, 3)), Computed(Signals()));
  EXPECT_EQ(Resample(Tensor::Zeros({3, 0}), 1, 2).shape(), Shape({3, 0}));
  EXPECT_EQ(Resample(Tensor::Zeros({2, 3, 10}), 2, 1).shape(), Shape({2, 3, 5}));
  EXPECT_EQ(Resample(Tensor::Zeros({11}), 3, 2).shape(), Shape({8}));
  EXPECT_ERROR(Resample(Signals(), 0, 3), "Resample", "from 1 on");
}

TEST(Signals, MuLaw) {
  const Tensor x = Tensor::From({-1., -0.5, -0.01, 0., 0.003, 0.25, 1.}, kFloat64);
  const Tensor codes = MuLawEncode(x);
  EXPECT_EQ(codes.dtype(), kInt32);
  EXPECT_EQ(Computed(codes), (Values{0, 16, 98, 128, 141, 223, 255}));
  ExpectNear(Computed(MuLawDecode(codes, 256, kFloat64)),
             {-1, -0.4966766264665899, -0.010225303858321285, 8.621159565072034e-05,
              0.0031326665378373112, 0.2456980837065721, 1},
             1e-13);
  EXPECT_ERROR(MuLawEncode(x, 1), "MuLawEncode", "two channels");
  EXPECT_ERROR(MuLawDecode(codes, 256, kInt32), "MuLawDecode", "gives floats");
}

TEST(Signals, KaiserWindow) {
  ExpectNear(Computed(KaiserWindow(5, true, 12, kFloat64)),
             {5.2773441320097665e-05, 0.10171968770956323, 0.7929398341014605, 0.7929398341014605,
              0.10171968770956323},
             1e-14);
  ExpectNear(Computed(KaiserWindow(4, false, 3.5, kFloat64)),
             {0.13553434913875384, 0.8459726478388895, 0.8459726478388895, 0.13553434913875384},
             1e-14);
  EXPECT_EQ(Computed(KaiserWindow(1)), Values{1});
  EXPECT_EQ(KaiserWindow(0).shape(), Shape({0}));
}

TEST(Signals, OfShortPieces) {
  const Tensor x = Waves({24});
  EXPECT_EQ(Computed(Stft(x, {.size = 3})), Computed(Stft(x, {.size = 3, .hop = 1})));
}

TEST(Signals, Refuse) {
  EXPECT_ERROR(Stft(Waves({4}), {.size = 8, .center = false}), "Stft",
               "longer than a signal of f64[4]");
  EXPECT_ERROR(Stft(Waves({24}), {.size = 4, .window = Waves({6})}), "Stft", "1 to 4 elements");
  EXPECT_ERROR(Stft(Waves({24}), {.size = 3, .hop = -1}), "Stft", "as far apart, not 3 and -1");
  EXPECT_ERROR(Istft(Waves({5, 13, 2}), {.size = 10}), "Istft", "[..., 6, pieces, 2]");
  EXPECT_ERROR(Istft(Waves({5, 13, 2}), {.size = 8}, -5), "Istft", "length from 0 on, not -5");
  EXPECT_ERROR(Spectrogram(Waves({24}), {.size = 8}, 0), "Spectrogram", "a power above 0");
  EXPECT_ERROR(Spectrogram(Waves({24}), {.size = 8}, kInf), "Spectrogram", "finite, not inf");
  EXPECT_ERROR(MelFilters(5, {}, kInt32), "MelFilters", "gives floats");
  EXPECT_ERROR(MelFilters(5, {.low = 9000}), "MelFilters", "ascend");
  EXPECT_ERROR(AmplitudeToDb(Waves({3}), 10, 0), "AmplitudeToDb", "above 0");
}

}  // namespace
}  // namespace tessera
