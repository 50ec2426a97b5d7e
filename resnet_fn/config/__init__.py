"""Settings, flags, and what all rooms need to print and to read.

To read the settings, follow one setting:

    declaration       declares a setting, and checks a value of it
    optimizers        which settings each optimizer reads
    rules             which settings need which others
    draft             where each setting comes from; how flags, a file and a recipe are merged, and
                      how the rules are applied
    setting_names     the names of all settings, and hints about others
    settings          the base class of recipe and options; its constructor checks the settings
    recipe, options   all settings
    toml_file         reads the TOML of a recipe file, with the number of each line
    recipe_file       reads and writes a recipe file
    stored            reads the settings that runs and checkpoints have stored
    cli               the parser of all commands, their lines of errors and exit codes
    shared_flags      flags of several commands, and flags that are made of settings

Words: a setting is *given* if it is laid over others, *written* if a flag or a file gives it for
this run, *chosen* if the user did and it has an effect, *extended* if a file has it that the
user's file extends, and *dropped* if nothing uses it; a draft is *resolved* by checks and rules;
what a run or checkpoint has of its settings is *stored*.

The other modules need not be read for this. `hints`, `flag_hints`, `path_hints`, `foreign_flags`
and `wording` make parts of messages, `values` converts values to texts, paths and JSON, `printing` prints,
`reading` reads files of others, `output_paths` checks what a command is to write and has what helps
if a write fails, and `packages` lists versions.
"""
