/* tokenizer [PEER]: megabytes a second of tokenizing English, source code and Chinese with three vocabularies of
 * ../shared, one thread, CPU time, best of several runs. With a peer's folder its tokenizer runs over the same texts:
 * CPU time of the process less that of a run over one byte, less what printing the ids costs. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/buffer.h"
#include "engine/tokenizer/tokenizer.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { TEXT_BYTES = 1 << 20, RUNS = 7, PEER_RUNS = 3 };

/* ---- texts: sentences made of words, frequent ones first ---- */

static const char *const english_words[] = {
    "the", "of", "and", "to", "a", "in", "that", "was", "is", "it", "for", "on", "with", "as", "by", "at", "from",
    "which", "this", "had", "not", "are", "but", "be", "have", "one", "they", "or", "their", "all", "there", "water",
    "when", "would", "river", "between", "small", "because", "people", "through", "before", "engine", "language",
    "morning", "without", "another", "carefully", "question", "together", "mountain", "remember", "temperature",
    "suddenly", "government", "understand", "everything", "neighbours", "particular", "development", "experience",
    "measurement", "lighthouse", "photograph", "yesterday", "instrument", "conversation", "responsibility", "harbour",
    "unfortunately", "architecture", "Mediterranean", "extraordinary", "don't", "couldn't", "it's", "Paris", "Anna",
    "London", "October", "1984", "37", "2,500", "first-hand", "tokenization", "electromagnetic", "Beethoven"};
static const char *const code_words[] = {
    "size_t i", "return", "if (", ") {\n        ", ";\n    ", "int", "const char *name", "struct buffer *out", "->size",
    "(void)", "for (size_t i = 0; i < n; i++)\n        ", "self.", "NULL", " == ", " != ", " += 1", "\n\n", "}\n",
    "static enum status ", "error_set(err, STATUS_INVALID, \"", "%zu", "\\n\")", "def __init__(self, value=0):\n        ",
    "    # TODO: check the bounds\n", "public final class ", "HashMap<String, List<Integer>>", "0x7fffffff", "<<= 2",
    "assert len(items) > 0\n", "printf(\"%d %s\\n\", ", "getElementById('main')", "=> {", "import numpy as np\n",
    "&& !is_empty(queue)", "tensor.view(-1, 768)", "camelCaseIdentifier", "MAX_BUFFER_SIZE", "[i + 1]", "/* why */ "};
static const char *const chinese_words[] = {
    "的", "一", "是", "不", "了", "在", "人", "有", "我", "他", "这", "个", "们", "中", "来", "上", "大", "为", "和", "国",
    "我们", "时间", "可以", "自己", "没有", "什么", "问题", "现在", "工作", "生活", "学生", "世界", "因为", "所以", "城市",
    "河流", "图书馆", "计算机", "语言", "模型", "火车站", "春天", "朋友", "科学家", "温度", "测量", "经济发展", "人工智能",
    "电子邮件", "高速公路", "大学", "历史", "音乐会", "早上", "昨天晚上", "2024年", "百分之三十", "北京", "上海市"};

static size_t frequent_below(uint64_t *state, size_t n)
{
    size_t a = random_below(state, n), b = random_below(state, n);
    return a * b / n;
}

static void make_words(struct buffer *out, const char *const *words, size_t n, const char *gap, const char *comma,
                       const char *stop, uint64_t seed)
{
    while (out->size < TEXT_BYTES) {
        size_t length = 4 + random_below(&seed, 14);
        for (size_t i = 0; i < length; i++) {
            buffer_text(out, words[frequent_below(&seed, n)]);
            buffer_text(out, i + 1 == length ? stop : random_below(&seed, 9) ? gap : comma);
        }
        if (random_below(&seed, 6) == 0)
            buffer_text(out, "\n\n");
    }
    out->size = TEXT_BYTES - TEXT_BYTES % 3; /* words of three bytes a character are cut between characters, mostly */
}

static const struct text_kind {
    const char *name;
    const char *const *words;
    size_t n;
    const char *gap, *comma, *stop;
} kinds[] = {
#define WORDS(w) w, sizeof w / sizeof w[0]
    {"English", WORDS(english_words), " ", ", ", ". "},
    {"code", WORDS(code_words), "", " ", "\n"},
    {"Chinese", WORDS(chinese_words), "", "，", "。"},
};
static const char *const vocabularies[] = {"llama-bpe", "qwen2", "tekken"};

/* ---- measuring ---- */

static double seconds(const struct timespec *t)
{
    return (double)t->tv_sec + 1e-9 * (double)t->tv_nsec;
}

static double cpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return seconds(&t);
}

static void die(const char *what)
{
    fprintf(stderr, "tokenizer: %s\n", what);
    exit(1);
}

static double own_seconds(const struct tokenizer *t, struct span text, struct token_list *ids)
{
    struct error err;
    double best = 1e9;
    for (int run = 0; run < RUNS; run++) {
        ids->count = 0;
        double start = cpu_now();
        if (tokenizer_encode(t, text, 0, SIZE_MAX, ids, &err) != STATUS_OK)
            die(err.text);
        double took = cpu_now() - start;
        best = took < best ? took : best;
    }
    return best;
}

static double printing_seconds(const struct token_list *ids)
{
    FILE *f = fopen("/dev/null", "w");
    if (!f)
        die("cannot write to /dev/null");
    double start = cpu_now();
    for (size_t i = 0; i < ids->count; i++)
        fprintf(f, "%s%d", i ? " " : "", ids->data[i]);
    double took = cpu_now() - start;
    fclose(f);
    return took;
}

/* CPU seconds of one run of the peer over `text`. */
static double peer_run(const char *peer, const char *model, const char *text_path)
{
    pid_t child = fork();
    if (child == 0) {
        char program[4096], backends[4096];
        snprintf(program, sizeof program, "%s/peer", peer);
        snprintf(backends, sizeof backends, "%s/native", peer);
        setenv("PEER_BACKENDS", backends, 1);
        int in = open(text_path, O_RDONLY), out = open("/dev/null", O_WRONLY);
        if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0)
            _exit(126);
        execl(program, program, "tokenize", model, "0", "0", (char *)NULL);
        _exit(127);
    }
    int status;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) != child || status != 0)
        die("the peer failed");
    return (double)used.ru_utime.tv_sec + 1e-6 * (double)used.ru_utime.tv_usec + (double)used.ru_stime.tv_sec +
           1e-6 * (double)used.ru_stime.tv_usec;
}

static double peer_best(const char *peer, const char *model, struct span text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/text", suite_tmp());
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(text.data, 1, text.size, f) != text.size || fclose(f) != 0)
        die("cannot write a text for the peer");
    double best = 1e9;
    for (int run = 0; run < PEER_RUNS; run++) {
        double took = peer_run(peer, model, path);
        best = took < best ? took : best;
    }
    return best;
}

static void measure(const char *vocabulary, const char *peer)
{
    char name[64], model[4096];
    struct error err;
    struct gguf *g;
    struct tokenizer *t;
    snprintf(name, sizeof name, "fixtures/vocab/%s.gguf", vocabulary);
    const char *path = suite_shared(name);
    if (!path) {
        printf("%-10s not measured: ../shared/%s is missing\n", vocabulary, name);
        return;
    }
    snprintf(model, sizeof model, "%s", path);
    double start = cpu_now();
    if (gguf_open(model, NULL, &g, &err) != STATUS_OK || tokenizer_new(g, NULL, &t, &err) != STATUS_OK)
        die(err.text);
    double load = cpu_now() - start, peer_load = peer ? peer_best(peer, model, (struct span){"a", 1}) : 0;
    printf("%-10s load %.0f ms", vocabulary, load * 1e3);
    printf(peer ? ", peer %.0f ms\n" : "\n", peer_load * 1e3);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct buffer text;
        struct token_list ids = {0};
        buffer_init(&text);
        make_words(&text, kinds[k].words, kinds[k].n, kinds[k].gap, kinds[k].comma, kinds[k].stop, 1);
        double own = own_seconds(t, buffer_span(&text), &ids), mb = (double)text.size * 1e-6;
        printf("  %-8s %7zu tokens %8.1f MB/s", kinds[k].name, ids.count, mb / own);
        if (peer) {
            double other = peer_best(peer, model, buffer_span(&text)) - peer_load - printing_seconds(&ids);
            printf("   peer %6.2f MB/s   %5.1f times", mb / other, other / own);
        }
        putchar('\n');
        fflush(stdout);
        free(ids.data);
        buffer_clear(&text);
    }
    tokenizer_free(t);
    gguf_close(g);
}

int main(int argc, char **argv)
{
    const char *peer = argc > 1 && argv[1][0] ? argv[1] : NULL;
    for (size_t i = 0; i < sizeof vocabularies / sizeof vocabularies[0]; i++)
        measure(vocabularies[i], peer);
    return 0;
}
