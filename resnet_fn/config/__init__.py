"""This package holds the settings of a training run, and makes command-line flags from them.

To read it, follow a setting:

    declaration       declares a setting, and checks a value of it
    optimizers        which settings each optimizer reads
    rules             which settings need which others
    draft             where a value comes from, and how the rules are applied
    settings          the base class of recipe and options, whose constructor checks the settings
    recipe, options   all settings
    recipe_file       reads and writes a recipe file
    cli               the parser of all commands, flags that are made of settings, exit codes

The other modules need not be read for this. `hints`, `wording` and `foreign_flags` make parts of
messages, `printing` prints, `reading` reads files of others, `output_paths` checks what a command
is to write, and `packages` lists versions.
"""
