/* The configuration as text: --help, JSON, and the table of docs/configuration.md, all from options.def. */
#include "daemon/config.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "daemon/options.h"

static void write_option_help(const struct option *o, struct buffer *out)
{
    char left[64];
    bool choice = o->type == OPTION_choice, on = strcmp(o->fallback, "true") == 0;
    snprintf(left, sizeof left, "  --%s%s%s", o->key, *o->argument ? " " : "", choice ? "WORD" : o->argument);
    for (char *p = left + 4; *p && *p != ' '; p++)
        if (*p == '_')
            *p = '-';
    buffer_printf(out, "%-28s %s", left, o->help);
    if (choice)
        buffer_printf(out, ": %s", o->argument);
    if (*o->fallback && o->type != OPTION_boolean)
        buffer_printf(out, " [%s]", o->fallback);
    if (o->type == OPTION_boolean && on)
        buffer_printf(out, " [on; --%s=false]", o->key);
    buffer_byte(out, '\n');
}

void config_help(struct buffer *out)
{
    buffer_text(out, "ggufd --model FILE [OPTION]...    serves one GGUF model over HTTP\n\n");
    for (size_t i = 0; i < OPTION_COUNT; i++)
        write_option_help(&options[i], out);
    buffer_text(out, "  --config FILE              JSON file with these keys (_ for -)\n"
                     "  --check                    check configuration and model, then exit\n"
                     "  --inspect MODEL            describe a model file, then exit\n"
                     "  --prompt TEXT              generate max-tokens tokens to stdout, then exit\n"
                     "  --prompt-tokens 1,2,3      the same with token ids\n"
                     "  --json                     JSON from --check, --inspect, --prompt\n"
                     "  --help, --version\n\n"
                     "Command line over environment (GGUFD_LOG_LEVEL) over file over default.\n"
                     "Exit status: 0 stopped in order, 1 failed, 2 configuration or model refused.\n");
}

void config_write_json(const struct config *config, struct buffer *out)
{
    buffer_text(out, "{\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        buffer_printf(out, "    \"%s\": ", options[i].key);
        option_write_json(&options[i], config, out);
        buffer_text(out, i + 1 < OPTION_COUNT ? ",\n" : "\n");
    }
    buffer_text(out, "}\n");
}

/* "|" ends a cell of the table. */
static void write_cell(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            buffer_byte(out, '\\');
        buffer_byte(out, *text);
    }
}

void config_write_markdown(struct buffer *out)
{
    buffer_text(out, "| key | value | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        char expected[128];
        buffer_printf(out, "| `%s` | ", options[i].key);
        write_cell(out, option_expected(&options[i], expected, sizeof expected));
        buffer_printf(out, *options[i].fallback ? " | `%s` | " : " | none%s | ", options[i].fallback);
        write_cell(out, options[i].help);
        buffer_text(out, " |\n");
    }
}
