// The command line: options, modes, what goes to which stream, and errors in one line.
#include "examples/llm/command.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "tests/llm/models.h"
#include "tests/llm/small_files.h"
#include "tests/testing.h"
#include "tests/tools/run_tool.h"

namespace tessera::llm {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

const std::string kModel = std::string("--model ") + kStory + " ";

// What it prints on stdout, with this text on stdin.
Outcome Llm(const std::string& arguments, const std::string& in = "") {
  const std::string file = OwnTempDir() + "/stdin.txt";
  std::ofstream(file) << in;
  return RunTool("llm", kModel + arguments + " 2>/dev/null <" + file + " #");
}

TEST(Command, TellsTheStoryByDefault) {
  const Outcome o = Llm("--prompt 'Once upon a time'");
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.out, ReadFile(kStoryText));
}

TEST(Command, PromptFromStdin) {
  for (const char* option : {"", "--prompt -"}) {
    EXPECT_EQ(Llm(std::string("--max-tokens 3 ") + option, "Once upon a time").out,
              "Once upon a time, there was\n");
  }
}

TEST(Command, JsonIsOneObject) {
  const Outcome o = Llm("--prompt 'Once upon a time' --max-tokens 4 --json");
  const nlohmann::json json = nlohmann::json::parse(o.out);
  EXPECT_EQ(json["prompt"], "Once upon a time");
  EXPECT_EQ(json["text"], ", there was a");
  EXPECT_EQ(json["tokens"].size(), 4u);
  EXPECT_EQ(json["reason"], "length");
  EXPECT_EQ(json["prompt_tokens"], 5);
}

TEST(Command, GuessesWhatItIsAskedTo) {
  const std::string prompt =
      "--prompt 'the big dog and the big dog and the' --max-tokens 40 --json";
  const nlohmann::json plain = nlohmann::json::parse(Llm(prompt).out),
                       guessed = nlohmann::json::parse(Llm(prompt + " --draft 3").out);
  EXPECT_EQ(guessed["text"], plain["text"]);
  EXPECT_EQ(plain["guessed_tokens"], 0);
  EXPECT_GT(guessed["guessed_tokens"], 0);
  EXPECT_LE(guessed["kept_guesses"], guessed["guessed_tokens"]);
  const Outcome o = RunTool("llm", kModel + "--prompt 'the big dog and the big' --draft 3");
  EXPECT_THAT(o.out, HasSubstr(" guesses kept\n"));
  const nlohmann::json bench = nlohmann::json::parse(Llm("--bench --json --draft 5").out);
  EXPECT_EQ(bench["guesses"], 5);
  EXPECT_GT(bench["checks_per_second"], 0);
}

TEST(Command, GuessesByAnotherModel) {
  const std::string options = "--prompt 'One day' --max-tokens 30 --json ";
  const nlohmann::json plain = nlohmann::json::parse(Llm(options).out);
  const nlohmann::json same = nlohmann::json::parse(Llm(options + "--draft-model " + kStory).out);
  EXPECT_EQ(same["text"], plain["text"]);
  EXPECT_GT(same["kept_guesses"], 15);
  const std::string other = SmallGguf().Write();
  const Outcome o = RunTool("llm", kModel + options + "--draft-model " + other);
  EXPECT_EQ(o.exit, 1);
  EXPECT_THAT(o.out, HasSubstr("cannot guess for examples/llm/models/stories260K/"));
  EXPECT_THAT(Llm(options + "--draft 0 --draft-model " + other).out, HasSubstr("\"text\""));
  // Models that cannot guess say so.
  const Outcome small = RunTool("llm", kModel + "--prompt a --context 3 --max-tokens 1 --draft 3");
  EXPECT_THAT(small.out, HasSubstr("writes without guesses: its context has no room for any"));
}

TEST(Command, JsonInEveryMode) {
  const auto json = [](const std::string& arguments, const std::string& in = "") {
    const Outcome o = Llm(arguments + " --json", in);
    EXPECT_EQ(o.exit, 0) << arguments;
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
    return nlohmann::json::parse(o.out);
  };
  EXPECT_EQ(json("--tokenize", "Once upon a time")["tokens"],
            (std::vector<int>{1, 403, 407, 261, 378}));
  EXPECT_EQ(json("--tokenize --no-bos")["tokens"], std::vector<int>());
  const nlohmann::json check = json("--check-tensors");
  EXPECT_EQ(check["architecture"], "llama");
  EXPECT_EQ(check["layers"], 5);
  EXPECT_EQ(check["dim"], 64);
  EXPECT_EQ(check["vocabulary"], 512);
  EXPECT_EQ(check["weights_are_finite"], true);
  EXPECT_EQ(check["first_token"], 403);
  EXPECT_EQ(check["first_text"], " Once");
  EXPECT_THAT(std::string(json("--explain")["explanation"]), HasSubstr("kernels"));
  const std::string file = OwnTempDir() + "/json.npy";
  const nlohmann::json logits = json("--prompt 'Once upon a time' --logits " + file);
  EXPECT_EQ(logits["file"], file);
  EXPECT_EQ(logits["tokens"], 5);
  EXPECT_EQ(logits["vocabulary"], 512);
  std::ofstream(file) << "Once upon a time";
  EXPECT_EQ(json("--perplexity " + file)["tokens"], 4);
  EXPECT_GT(json("--bench --context 8")["decode_tokens_per_second"], 0);
}

TEST(Command, WhatDoesNotFitIsNotShown) {
  const Outcome o = Llm("--prompt 'Once upon a time' --context 3");
  EXPECT_EQ(o.exit, 1);
  EXPECT_EQ(o.out, "");
}

TEST(Command, AFullDiskIsAnError) {
  const std::string arguments = std::string("--model ") + kStory + " --max-tokens 2 --prompt ";
  EXPECT_EQ(RunTool("llm", arguments + "Once 2>/dev/null >/dev/full #").exit, 1);
  EXPECT_EQ(RunTool("llm", arguments + "Once --json 2>/dev/null >/dev/full #").exit, 1);
}

TEST(Command, Tokenize) {
  EXPECT_EQ(Llm("--tokenize", "Once upon a time").out, "1 403 407 261 378\n");
  EXPECT_EQ(Llm("--tokenize --no-bos", "Once upon a time").out, "403 407 261 378\n");
  EXPECT_EQ(Llm("--tokenize --no-bos", "").out, "\n");
}

TEST(Command, ChecksAndExplains) {
  const Outcome check = Llm("--check-tensors");
  EXPECT_EQ(check.exit, 0);
  EXPECT_THAT(check.out, HasSubstr("layers         5 of 64, feed-forward 172\n"));
  EXPECT_THAT(check.out, HasSubstr("weights are    finite\n"));
  EXPECT_THAT(check.out, HasSubstr("first token    403 \" Once\"\n"));
  EXPECT_THAT(Llm("--explain").out, HasSubstr("kernels"));
}

TEST(Command, WritesLogits) {
  const std::string path = OwnTempDir() + "/logits.npy";
  const Outcome o = Llm("--prompt 'Once upon a time' --logits " + path);
  ASSERT_EQ(o.exit, 0);
  const std::string bytes = ReadFile(path);
  ASSERT_EQ(bytes.substr(0, 6), "\x93NUMPY");
  EXPECT_THAT(bytes, HasSubstr("'shape': (5, 512)"));
  const size_t header = 10 + static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  EXPECT_EQ(header % 64, 0u);
  ASSERT_EQ(bytes.size(), header + 5 * 512 * 4);
  float first;
  std::memcpy(&first, &bytes[header + 4 * 512 * 4], 4);
  EXPECT_NEAR(first, -10.136578, 1e-3);  // golden.json
}

TEST(Command, Perplexity) {
  const std::string path = OwnTempDir() + "/story.txt";
  const std::string text = ReadFile(kStoryText);
  std::ofstream(path) << text.substr(0, text.size() - 1);  // as the golden value's tokens
  const Outcome o = Llm("--perplexity " + path);
  EXPECT_NEAR(std::stod(o.out), std::exp(0.457346), 1e-3);  // greedy_story_mean_nll of golden.json
}

// A chat of a small model with 256 positions and characters as tokens.
Outcome Chat(const std::string& options, const std::string& in, bool errors = true,
             const std::string& chat_template = "<|im_start|>") {
  const std::string model = OwnTempDir() + "/chat.gguf";
  std::ofstream(model, std::ios::binary) << SmallGguf()
                                                .Set("llama.context_length", uint32_t{256})
                                                .Set("tokenizer.chat_template", chat_template)
                                                .Bytes();
  std::ofstream(model + ".in") << in;
  return RunTool("llm", "--model " + model + " --chat --max-tokens 2 " + options + " <" + model +
                            ".in" + (errors ? "" : " 2>/dev/null #"));
}

TEST(Command, KeepsToAGrammarOrASchema) {
  const std::string grammar = OwnTempDir() + "/g.gbnf", schema = OwnTempDir() + "/s.json";
  std::ofstream(grammar) << "root ::= \" there \" (\"is\" | \"are\") \" \" [a-z]+ \".\"";
  std::ofstream(schema) << R"({"type": "array", "items": {"enum": ["cat", "dog"]}, "minItems": 2,
                               "maxItems": 3})";
  const std::string prompt = "--prompt 'Once upon a time' ";
  EXPECT_THAT(Llm(prompt + "--grammar " + grammar).out,
              MatchesRegex("Once upon a time there (is|are) [a-z]+\\.\n"));
  const Outcome json = Llm(prompt + "--json --json-schema " + schema);
  const auto list = nlohmann::json::parse(std::string(nlohmann::json::parse(json.out)["text"]));
  EXPECT_TRUE(list.size() == 2 || list.size() == 3) << json.out;
  const std::string two = OwnTempDir() + "/two.gbnf";
  std::ofstream(two) << "root ::= \"q\" \"z\"";
  EXPECT_EQ(Chat("--grammar " + two, "ab\nab\n", false).out, "qz\nqz\n");
  for (const auto& [arguments, error] : std::vector<std::pair<std::string, std::string>>{
           {"--grammar " + schema, "s.json: line 1, column 1: a rule begins with its name"},
           {"--json-schema " + grammar, "g.gbnf: byte 0: no JSON value"},
           {"--grammar /nowhere", "/nowhere: No such file"},
           {"--grammar " + grammar + " --bench", "--grammar goes with --prompt or --chat"},
           {"--grammar " + grammar + " --json-schema " + schema, "keeps to one of them"}}) {
    const Outcome o = RunTool("llm", kModel + arguments);
    EXPECT_EQ(o.exit, 2);
    EXPECT_THAT(o.out, HasSubstr(error));
  }
}

TEST(Command, ChatsAndForgetsTheOldestTurns) {
  const Outcome three =
      Chat("", "ab ab\n" + std::string(40, 'a') + "\n" + std::string(40, 'b') + "\n");
  EXPECT_EQ(three.exit, 0) << three.out;
  EXPECT_THAT(three.out, HasSubstr("its oldest turn is dropped"));
  const std::vector<std::string> answers = absl::StrSplit(three.out, "2 more at");
  EXPECT_EQ(answers.size(), 4u) << three.out;
}

// What a tool answered stays with what it was asked for; older turns are dropped, all at once.
TEST(Command, ForgetsTheOldestTurnsBeforeAToolsResult) {
  const std::string file = OwnTempDir() + "/messages.json";
  std::string turns;
  for (int i = 0; i < 40; ++i) {
    turns += R"({"role": "user", "content": "ab ab"}, {"role": "assistant", "content": "ba"}, )";
  }
  const auto chat = [&](const std::string& result) {
    std::ofstream(file) << "[" << turns << R"({"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}, {"role": "tool", "content": ")"
                        << result << "\"}]";
    return Chat("--messages " + file, "", true,
                "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}");
  };
  const Outcome o = chat("bb");
  EXPECT_EQ(o.exit, 0) << o.out;
  EXPECT_THAT(o.out, ::testing::ContainsRegex("its [1-3][0-9] oldest turns are dropped"));
  EXPECT_THAT(o.out, HasSubstr("2 more at"));
  EXPECT_THAT(chat(std::string(300, 'b')).out, HasSubstr("of the context's 256 positions"));
}

TEST(Command, ASystemMessageOfAFileStays) {
  const std::string file = OwnTempDir() + "/messages.json";
  std::ofstream(file) << R"([{"role": "system", "content": "aaaa"}])";
  const std::string line = std::string(70, 'b') + "\n";
  const Outcome o = Chat("--messages " + file, line + line + line, true,
                         "{% if messages[0].role != 'system' and messages[0].content|length > 9 %}"
                         "{{ raise_exception('none') }}{% endif %}{% for m in messages %}"
                         "{{ m.content }}{% endfor %}");
  EXPECT_EQ(o.exit, 0) << o.out;
  EXPECT_THAT(o.out, HasSubstr("turn is dropped"));
  EXPECT_THAT(o.out, ::testing::Not(HasSubstr("none")));
  const std::vector<std::string> answers = absl::StrSplit(o.out, "2 more at");
  EXPECT_EQ(answers.size(), 4u) << "and is not answered: " << o.out;
}

TEST(Command, ChatsAfterAPrompt) {
  const Outcome o = Chat("--json --prompt 'ab a'", "ba\n", false);
  EXPECT_EQ(o.exit, 0);
  std::vector<std::string> messages;
  for (absl::string_view line : absl::StrSplit(o.out, '\n', absl::SkipEmpty())) {
    const nlohmann::json json = nlohmann::json::parse(line.begin(), line.end());
    EXPECT_EQ(json["event"], "answer");
    EXPECT_EQ(json["tokens"].size(), 2u);
    messages.push_back(json["message"]);
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"ab a", "ba"}));
}

// Ctrl-C before a prompt is read to its end: none of it is computed, and the exit says so.
TEST(Command, AnInterruptEndsThePrompt) {
  const std::string dir = OwnTempDir(), pipe = dir + "/pipe", errors = dir + "/errors.txt",
                    script = dir + "/interrupt.sh";
  std::ofstream(script) << "mkfifo " << pipe << "; \"$@\" <" << pipe << " 2>" << errors
                        << " & child=$!; exec 3>" << pipe << "\n"
                        << "until grep -q 'loaded in' " << errors << "; do sleep 0.01; done\n"
                        << "kill -INT $child; echo Once upon a time >&3; exec 3>&-\n"
                        << "wait $child; status=$?; cat " << errors << "; exit $status\n";
  const Outcome o = RunTool("llm", "2>&1 >/dev/null; timeout 20 sh " + script + " " +
                                       std::string(kBinDir) + "/llm " + kModel);
  EXPECT_EQ(o.exit, 130) << o.out;
  EXPECT_THAT(o.out, HasSubstr("llm: interrupted\n"));
  EXPECT_THAT(o.out, ::testing::Not(HasSubstr("tokens/s")));
}

TEST(Command, ChatsOnAfterWhatItRefuses) {
  const Outcome o = Chat("", std::string(300, 'b') + "\nab\xFF\nab\n");
  EXPECT_EQ(o.exit, 0) << o.out;
  EXPECT_THAT(o.out, HasSubstr("of the context's 256 positions"));
  EXPECT_THAT(o.out, HasSubstr("the message: not UTF-8 from byte 2"));
  const std::vector<std::string> answers = absl::StrSplit(o.out, "2 more at");
  EXPECT_EQ(answers.size(), 2u) << o.out;
  const Outcome json = Chat("--json", std::string(300, 'b') + "\n", false);
  EXPECT_EQ(nlohmann::json::parse(json.out)["event"], "refused");
  const Outcome strict = Chat("", "abab\nab\n", true,
                              "{% for m in messages %}{% if m.content == 'abab' %}"
                              "{{ raise_exception('not that') }}{% endif %}{{ m.content }}"
                              "{% endfor %}");
  EXPECT_EQ(strict.exit, 0) << strict.out;
  EXPECT_THAT(strict.out, HasSubstr("the template says: not that"));
  const std::vector<std::string> one = absl::StrSplit(strict.out, "2 more at");
  EXPECT_EQ(one.size(), 2u) << strict.out;
}

TEST(Command, ErrorsAreOneLine) {
  const std::pair<const char*, const char*> rows[] = {
      {"", "llm: --model FILE|DIR is missing"},
      {"--modle x", "llm: '--modle' is no option"},
      {"--model", "llm: --model wants a value"},
      {"--model x --temperature hot", "--temperature 'hot': wants T"},
      {"--model x --temperature -1", "--temperature is -1"},
      {"--model x --temperature 1e300", "--temperature is 1e+300"},
      {"--model x --repeat-penalty 1e300", "--repeat-penalty is 1e+300"},
      {"--model x --repeat-penalty 1e-300", "it is from 1e-6 to 1e6"},
      {"--model x --presence-penalty 3", "--presence-penalty is 3; it is from -2 to 2"},
      {"--model x --frequency-penalty -3", "--frequency-penalty is -3"},
      {"--model x --typical-p 0", "--typical-p is 0"},
      {"--model x --repeat-last-n -2", "--repeat-last-n is -2"},
      {"--model x --logit-bias 5", "--logit-bias '5': wants ID+B|ID-B"},
      {"--model x --logit-bias x+1", "--logit-bias 'x+1'"},
      {"--model x --logit-bias 5+101", "--logit-bias is 101"},
      {"--model x --stop \xFF", "--stop: not UTF-8 from byte 0"},
      {"--model x --system a\xFF", "--system: not UTF-8 from byte 1"},
      {"--model x --prompt a\xFF", "--prompt: not UTF-8 from byte 1"},
      {"--model x --top-p 2", "--top-p is 2"},
      {"--model x --max-tokens -3", "--max-tokens '-3'"},
      {"--model x --context 0", "--context '0'"},
      {"--model x --stop ''", "--stop ''"},
      {"--model x --devices GPU:0", "--devices"},
      {"--model x --serve 65536", "--serve '65536': wants [HOST:]PORT"},
      {"--model x --serve ::1:80", "--serve '::1:80'"},
      {"--model x --slots 0", "--slots '0'"},
      {"--model x --draft 16", "--draft '16': wants N"},
      {"--model x --draft -1", "--draft '-1'"},
      {"--model x --api-key ''", "--api-key ''"},
      {"--model x --cors ''", "--cors '': wants ORIGIN"},
      {"--model /nowhere --prompt a", "/nowhere: No such file"}};
  for (const auto& [arguments, error] : rows) {
    const Outcome o = RunTool("llm", arguments);
    EXPECT_NE(o.exit, 0) << arguments;
    EXPECT_THAT(o.out, HasSubstr(error)) << arguments;
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 1) << o.out;
  }
  const Outcome bench = RunTool("llm", kModel + "--bench --context 1");
  EXPECT_EQ(bench.exit, 1);
  EXPECT_THAT(bench.out, HasSubstr("give --context 2 or more"));
  const Outcome bias = RunTool("llm", kModel + "--prompt a --logit-bias 512+1");
  EXPECT_EQ(bias.exit, 1);
  EXPECT_THAT(bias.out, HasSubstr("--logit-bias has token 512, and the model has 512"));
  const Outcome nowhere = RunTool("llm", kModel + "--devices NULL:0 --prompt Once");
  EXPECT_EQ(nowhere.exit, 1);
  EXPECT_THAT(nowhere.out, HasSubstr("NULL has no values"));
  const Outcome chat = RunTool("llm", kModel + "--chat");
  EXPECT_THAT(chat.out, HasSubstr("no chat template"));
  const std::string text = OwnTempDir() + "/latin1.txt";
  std::ofstream(text) << "a\xFF";
  for (const std::string& mode :
       std::vector<std::string>{"--prompt -", "--tokenize", "--logits " + text + ".npy"}) {
    const Outcome utf8 = RunTool("llm", kModel + mode + " <" + text);
    EXPECT_EQ(utf8.exit, 1);
    EXPECT_THAT(utf8.out, HasSubstr("llm: stdin: not UTF-8 from byte 1\n"));
  }
  EXPECT_THAT(RunTool("llm", kModel + "--perplexity " + text).out,
              HasSubstr("latin1.txt: not UTF-8 from byte 1"));
}

TEST(Command, OptionsAreSet) {
  ASSERT_OK_AND_ASSIGN(const Command c, ParseCommand(std::vector<std::string>{"--model",
                                                                              "m",
                                                                              "--prompt",
                                                                              "p",
                                                                              "--stop",
                                                                              "a",
                                                                              "--stop",
                                                                              "b",
                                                                              "--seed",
                                                                              "9",
                                                                              "--top-k",
                                                                              "4",
                                                                              "--top-p",
                                                                              "0.5",
                                                                              "--min-p",
                                                                              "0.1",
                                                                              "--repeat-penalty",
                                                                              "1.1",
                                                                              "--temperature",
                                                                              "0.7",
                                                                              "--context",
                                                                              "99",
                                                                              "--typical-p",
                                                                              "0.9",
                                                                              "--repeat-last-n",
                                                                              "-1",
                                                                              "--presence-penalty",
                                                                              "0.5",
                                                                              "--frequency-penalty",
                                                                              "-0.5",
                                                                              "--logit-bias",
                                                                              "5-100",
                                                                              "--logit-bias",
                                                                              "7+1.5"}));
  EXPECT_EQ(c.model, "m");
  EXPECT_EQ(c.prompt, "p");
  EXPECT_TRUE(c.prompt_given);
  EXPECT_EQ(c.stops, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(c.sampler.seed, 9u);
  EXPECT_EQ(c.sampler.top_k, 4);
  EXPECT_EQ(c.sampler.temperature, 0.7);
  EXPECT_EQ(c.context, 99);
  EXPECT_EQ(c.sampler.typical_p, 0.9);
  EXPECT_EQ(c.sampler.repeat_last, -1);
  EXPECT_EQ(c.sampler.presence_penalty, 0.5);
  EXPECT_EQ(c.sampler.frequency_penalty, -0.5);
  EXPECT_EQ(c.sampler.biases, (std::vector<std::pair<int32_t, double>>{{5, -100}, {7, 1.5}}));
  EXPECT_THAT(CommandHelp(), HasSubstr("--repeat-penalty R"));
}

TEST(Command, AddressesToServeAt) {
  const auto address = [](const std::string& of) {
    const absl::StatusOr<Command> c =
        ParseCommand(std::vector<std::string>{"--model", "m", "--serve", of, "--slots", "7"});
    if (!c.ok() || c->mode != Command::Mode::kServe || c->slots != 7) return std::string("none");
    return absl::StrCat(c->host, " ", c->port);
  };
  EXPECT_EQ(address("8080"), "127.0.0.1 8080");
  EXPECT_EQ(address("0.0.0.0:80"), "0.0.0.0 80");
  EXPECT_EQ(address("localhost:0"), "localhost 0");
  EXPECT_EQ(address("[::1]:80"), "::1 80");
  for (const char* wrong : {"", "x", "-1", ":80", "[]:80", "host:", "a:b:80", "80:host", "65536"}) {
    EXPECT_EQ(address(wrong), "none") << wrong;
  }
}

TEST(Command, JsonStringsAreEscaped) {
  EXPECT_EQ(JsonString("a\"\\\n\xC3\xA9"), "\"a\\\"\\\\\\u000a\xC3\xA9\"");
  EXPECT_EQ(JsonString("\xFF\xE2\x82"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace tessera::llm
