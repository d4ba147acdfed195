// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import "path/filepath"

const stressProgram = "stress-ng"

// StressCommand is how stress-ng is started where its part lies in dir: by the loader beside it, since a guest and the lab's image have
// no C library. It says nothing, ends by itself should nobody end it, and leaves alone who is to be killed when memory runs out.
func StressCommand(dir string, args ...string) []string {
	return append([]string{
		filepath.Join(dir, Loader), "--library-path", dir, filepath.Join(dir, stressProgram),
		"--quiet", "--timeout", "1h", "--no-oom-adjust",
	}, args...)
}
