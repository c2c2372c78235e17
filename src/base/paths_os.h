/* paths_os.h - the folder names that differ between systems; used by paths.c alone. */
#pragma once

#ifdef __APPLE__
#define PATHS_XDG_CONFIG NULL
#define PATHS_XDG_DATA   NULL
#define PATHS_XDG_STATE  NULL
#define PATHS_CONFIG     "Library/Application Support"
#define PATHS_DATA       "Library/Application Support"
#define PATHS_STATE      "Library/Application Support"
#define PATHS_LOG        "Library/Logs"
#else
#define PATHS_XDG_CONFIG "XDG_CONFIG_HOME"
#define PATHS_XDG_DATA   "XDG_DATA_HOME"
#define PATHS_XDG_STATE  "XDG_STATE_HOME"
#define PATHS_CONFIG     ".config"
#define PATHS_DATA       ".local/share"
#define PATHS_STATE      ".local/state"
#define PATHS_LOG        ".local/state"
#endif
