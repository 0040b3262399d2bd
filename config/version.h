/* The version of this tree, stated once. */
#ifndef V4BOX_CONFIG_VERSION_H
#define V4BOX_CONFIG_VERSION_H

#define V4BOX_VERSION "0.1.0"

/* Of signed updates: the sequence rises with every release, and once a release is good a box takes
   nothing below its floor any more.  Raise the floor when what lies below must never run again. */
#define V4BOX_SEQUENCE "1"
#define V4BOX_FLOOR    "1"

#endif
