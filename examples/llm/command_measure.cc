// The modes that measure a model: check, bench, perplexity, logits.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "absl/strings/str_format.h"
#include "examples/llm/command.h"
#include "graph/status.h"
#include "runtime/peak.h"
#include "runtime/units.h"

namespace tessera::llm {
namespace {

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double LogSumExp(const float* row, int64_t n) {
  const double top = *std::max_element(row, row + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(row[i] - top);
  return top + std::log(sum);
}

// The prompt's tokens, as Generate would see them.
absl::StatusOr<std::vector<int32_t>> PromptTokens(const Command& command, const Model& model) {
  std::string text = command.prompt;
  if (!command.prompt_given) {
    ASSIGN_OR_RETURN(text, ReadText("-"));
  }
  Tokenizer::Options options;
  options.markup = true;
  return model.tokenizer->Encode(text, options);
}

absl::Status CheckFinite(const Matrix& m, const std::string& what) {
  if (m.values().IsFinite().All().Item<bool>()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(what, " holds values that are not finite"));
}

absl::Status CheckTensors(const Model& model) {
  RETURN_IF_ERROR(CheckFinite(model.embedding, "the embedding"));
  RETURN_IF_ERROR(CheckFinite(model.output, "the output matrix"));
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const LayerWeights& w = model.layers[i];
    for (const auto& [name, matrix] : kMatrices) {
      if (!(w.*matrix)) continue;
      RETURN_IF_ERROR(CheckFinite(w.*matrix, absl::StrCat("layer ", i, ", matrix ", name)));
    }
  }
  return absl::OkStatus();
}

// The likeliest after the token that begins a text; an error where a logit is not finite.
absl::StatusOr<int32_t> FirstToken(const Command& command, const Model& model, Session& session) {
  const int64_t vocabulary = model.config.vocabulary;
  const int64_t bos = model.tokenizer->spec().bos;
  const int32_t token = static_cast<int32_t>(std::max<int64_t>(bos, 0));
  const float* logits = session.Feed({&token, 1});
  for (int64_t i = 0; i < vocabulary; ++i) {
    if (!std::isfinite(logits[i])) {
      return absl::DataLossError(absl::StrCat(command.model, ": the logit of token ", i, " is ",
                                              logits[i], "; see --check-tensors"));
    }
  }
  return static_cast<int32_t>(std::max_element(logits, logits + vocabulary) - logits);
}

}  // namespace

absl::Status RunCheck(const Command& command, const Model& model, Session& session) {
  const ModelConfig& c = model.config;
  const std::string name = c.name.empty() ? command.model : c.name;
  if (command.check_tensors) RETURN_IF_ERROR(CheckTensors(model));
  ASSIGN_OR_RETURN(const int32_t next, FirstToken(command, model, session));
  const std::string& piece = model.tokenizer->Piece(next);
  if (command.json) {
    JsonLine json;
    json.Text("model", name)
        .Text("architecture", c.architecture)
        .Count("layers", c.layers)
        .Count("dim", c.dim)
        .Count("feed_forward", c.ffn)
        .Count("experts", c.experts)
        .Count("experts_used", c.experts_used)
        .Count("heads", c.heads)
        .Count("head_dim", c.head_dim)
        .Count("key_heads", c.kv_heads)
        .Count("latent", c.latent)
        .Count("window", c.window)
        .Count("vocabulary", c.vocabulary)
        .Count("tokens", model.tokenizer->size())
        .Count("weight_bytes", static_cast<int64_t>(model.bytes_stored))
        .Text("format", model.format)
        .Count("context", session.context())
        .Count("trained_context", c.context)
        .Count("cache_bytes", static_cast<int64_t>(session.cache_bytes()));
    if (command.check_tensors) json.Flag("weights_are_finite", true);
    json.Count("first_token", next).Text("first_text", piece).Print();
    return absl::OkStatus();
  }
  const auto line = [](const char* what, const std::string& value) {
    std::printf("%-14s %s\n", what, value.c_str());
  };
  line("model", name);
  line("architecture", c.architecture);
  const auto convolve = std::count(c.convolved.begin(), c.convolved.end(), true);
  const auto remember = std::count(c.remembers.begin(), c.remembers.end(), true);
  line("layers", absl::StrCat(c.layers, " of ", c.dim,
                              convolve > 0 ? absl::StrCat(", ", convolve, " convolve") : "",
                              remember > 0 ? absl::StrCat(", ", remember, " with a memory") : "",
                              ", feed-forward ", c.ffn));
  if (c.experts > 0) {
    line("experts",
         absl::StrCat(c.experts, " of ", c.expert_ffn, ", ", c.experts_used, " for a token",
                      c.shared_ffn > 0 ? absl::StrCat(", one shared of ", c.shared_ffn) : ""));
  }
  line("heads", absl::StrCat(c.heads, " of ", c.head_dim, ", ",
                             c.latent > 0 ? absl::StrCat("keys and values of ", c.latent)
                                          : absl::StrCat(c.kv_heads, " for keys"),
                             c.window > 0 ? absl::StrCat(", window ", c.window) : ""));
  line("vocabulary", absl::StrCat(c.vocabulary, ", ", model.tokenizer->size(), " tokens"));
  line("weights", absl::StrCat(ShowBytes(static_cast<double>(model.bytes_stored)), ", most in ",
                               model.format));
  line("context", absl::StrCat(session.context(), " of ", c.context, ", keys and values take ",
                               ShowBytes(static_cast<double>(session.cache_bytes()))));
  if (command.check_tensors) line("weights are", "finite");
  line("first token", absl::StrCat(next, " ", JsonString(piece)));
  return absl::OkStatus();
}

namespace {

// Of a step that checks so many guesses after a prompt, which the session stays at.
double SecondsOfCheck(Session& session, absl::Span<const int32_t> prompt, int64_t guesses) {
  constexpr int kChecks = 8;
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i <= guesses; ++i) {
    tokens.push_back(prompt[static_cast<size_t>(i) % prompt.size()]);
  }
  const int64_t position = session.position();
  std::vector<double> seconds;
  for (int i = 0; i < kChecks && !interrupted; ++i) {
    const double begin = Seconds();
    session.AdvanceGuessing(tokens);
    session.Likeliest();
    seconds.push_back(Seconds() - begin);
    session.Rewind(position);
  }
  return seconds.empty() ? 0 : Median(seconds);
}

}  // namespace

absl::Status RunBench(const Command& command, const Model& model, Session& session) {
  constexpr int kRuns = 5;
  if (session.context() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("--bench reads some tokens and writes one; the context is ", session.context(),
                     "; give --context 2 or more"));
  }
  const int64_t prefill = std::min(command.bench_prompt, session.context() / 2);
  const int64_t decode = std::min<int64_t>(64, session.context() - prefill);
  std::vector<int32_t> ids(static_cast<size_t>(prefill));
  for (int64_t i = 0; i < prefill; ++i) {
    ids[static_cast<size_t>(i)] = static_cast<int32_t>((i * 7919 + 11) % model.config.vocabulary);
  }
  std::vector<double> prefill_seconds, step_seconds, check_seconds;
  int64_t guesses = 0;
  for (int run = -1; run < kRuns; ++run) {  // the first compiles
    session.Rewind(0);
    const double begin = Seconds();
    session.Advance(ids);
    session.Likeliest();  // waits for it
    const double prefilled = Seconds();
    std::vector<double> steps;
    for (int64_t i = 0; i < decode && !interrupted; ++i) {
      const double start = Seconds();
      session.Advance({&ids[static_cast<size_t>(i % prefill)], 1});
      session.Likeliest();
      steps.push_back(Seconds() - start);
    }
    if (interrupted) return absl::CancelledError("interrupted");
    if (run < 0) continue;
    prefill_seconds.push_back(prefilled - begin);
    step_seconds.push_back(Median(steps));
    session.Rewind(prefill);
    guesses = session.MostGuesses();
    if (guesses > 0) check_seconds.push_back(SecondsOfCheck(session, ids, guesses));
  }
  const double prefill_rate = static_cast<double>(prefill) / Median(prefill_seconds);
  const double step = Median(step_seconds);
  const double check = guesses > 0 ? Median(check_seconds) : 0;
  // A step reads every weight and, on average over these positions, so much of the caches.
  const double positions = static_cast<double>(prefill) + static_cast<double>(decode) / 2;
  const double cache = static_cast<double>(session.cache_bytes()) * positions /
                       static_cast<double>(session.context());
  const double rate = (static_cast<double>(model.bytes_read) + cache) / step;
  const absl::Span<const Place> places = model.division.whole.places();
  // Of several GPUs all read at once; of several CPUs all are this one machine.
  double peak = MeasuredPeak(places[0]).bandwidth();
  if (places[0].kind() != "CPU") peak *= static_cast<double>(places.size());
  const double share = peak > 0 ? rate / peak : 0;
  if (command.json) {
    JsonLine line;
    line.Text("format", model.format)
        .Count("prefill_tokens", prefill)
        .Number("prefill_tokens_per_second", prefill_rate)
        .Number("decode_tokens_per_second", 1 / step)
        .Number("bytes_per_second", rate, 0)
        .Number("measured_bandwidth", peak, 0)
        .Number("bandwidth_share", share, 4);
    if (guesses > 0) line.Count("guesses", guesses).Number("checks_per_second", 1 / check);
    line.Print();
    return absl::OkStatus();
  }
  std::printf("prefill of %d  %10.1f tokens/s\ndecode          %10.1f tokens/s\n",
              static_cast<int>(prefill), prefill_rate, 1 / step);
  if (guesses > 0) {
    std::printf("of %2d guesses  %11.1f tokens/s where all are right, %.1f where none is\n",
                static_cast<int>(guesses), static_cast<double>(guesses + 1) / check, 1 / check);
  }
  std::printf("reads           %s/s, %.0f %% of the %s/s measured\n", ShowBytes(rate).c_str(),
              100 * share, ShowBytes(peak).c_str());
  return absl::OkStatus();
}

double MeanNegativeLogLikelihood(Session& session, int64_t vocabulary,
                                 absl::Span<const int32_t> ids) {
  constexpr size_t kPart = 64;  // rows of logits at a time
  double sum = 0;
  for (size_t begin = 0; begin + 1 < ids.size(); begin += kPart) {
    const size_t n = std::min(kPart, ids.size() - 1 - begin);
    const std::vector<float> logits = session.FeedForAll(ids.subspan(begin, n));
    for (size_t i = 0; i < n; ++i) {
      const float* row = logits.data() + i * static_cast<size_t>(vocabulary);
      sum += LogSumExp(row, vocabulary) - row[ids[begin + i + 1]];
    }
  }
  return sum / static_cast<double>(ids.size() - 1);
}

absl::Status RunPerplexity(const Command& command, const Model& model, Session& session) {
  ASSIGN_OR_RETURN(const std::string text, ReadText(command.file));
  Tokenizer::Options plain;
  plain.special = false;
  const std::vector<int32_t> ids = model.tokenizer->Encode(text, plain);
  const int64_t bos = model.tokenizer->spec().added_bos();
  const size_t window = static_cast<size_t>(session.context()) - (bos >= 0 ? 1 : 0);
  double sum = 0;
  int64_t count = 0;
  for (size_t begin = 0; begin < ids.size() && !interrupted; begin += window) {
    std::vector<int32_t> part;
    if (bos >= 0) part.push_back(static_cast<int32_t>(bos));
    part.insert(part.end(), ids.begin() + static_cast<int64_t>(begin),
                ids.begin() + static_cast<int64_t>(std::min(begin + window, ids.size())));
    if (part.size() < 2) break;
    session.Rewind(0);
    const int64_t predicted = static_cast<int64_t>(part.size()) - 1;
    sum += MeanNegativeLogLikelihood(session, model.config.vocabulary, part) *
           static_cast<double>(predicted);
    count += predicted;
    std::fprintf(stderr, "\rllm: %d of %d tokens, perplexity %.4f", static_cast<int>(count),
                 static_cast<int>(ids.size()), std::exp(sum / static_cast<double>(count)));
  }
  std::fprintf(stderr, "\n");
  if (count == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(command.file, ": too few tokens to predict one"));
  }
  const double mean = sum / static_cast<double>(count);
  if (std::isnan(mean)) {
    return absl::DataLossError("the model's logits are no numbers (NaN); --check says where");
  }
  if (command.json) {
    JsonLine()
        .Count("tokens", count)
        .Number("mean_nll", mean, 6)
        .Number("perplexity", std::exp(mean), 6)
        .Print();
  } else {
    std::printf("%.4f\n", std::exp(mean));
  }
  return absl::OkStatus();
}

absl::Status RunLogits(const Command& command, const Model& model, Session& session) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> ids, PromptTokens(command, model));
  if (ids.empty() || static_cast<int64_t>(ids.size()) > session.room()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the prompt has ", ids.size(), " tokens; 1 to ", session.room(), " may be"));
  }
  const std::vector<float> logits = session.FeedForAll(ids);
  std::string header =
      absl::StrFormat("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", ids.size(),
                      model.config.vocabulary);
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const uint16_t size = static_cast<uint16_t>(header.size());
  std::ofstream out(command.file, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8);
  out.write(reinterpret_cast<const char*>(&size), 2);
  out.write(header.data(), static_cast<int64_t>(header.size()));
  out.write(reinterpret_cast<const char*>(logits.data()),
            static_cast<int64_t>(logits.size() * sizeof(float)));
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat(command.file, ": cannot be written"));
  std::fprintf(stderr, "llm: %d x %d logits written to %s\n", static_cast<int>(ids.size()),
               static_cast<int>(model.config.vocabulary), command.file.c_str());
  if (command.json) {
    JsonLine()
        .Text("file", command.file)
        .Count("tokens", static_cast<int64_t>(ids.size()))
        .Count("vocabulary", model.config.vocabulary)
        .Print();
  }
  return absl::OkStatus();
}

}  // namespace tessera::llm
