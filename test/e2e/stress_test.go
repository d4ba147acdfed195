// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

//go:build lab

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/koord-rt/koord-rt/test/lab/parts"
)

// taking are stress-ng's words for one process that takes so much anonymous memory at once, writes it and keeps it, asleep: one that
// went on would take an emulated CPU with it.
func taking(size int) []string {
	return []string{
		"--vm", "1", "--vm-bytes", strconv.Itoa(size), "--vm-keep", "--vm-populate", "--vm-hang", "0", "--vm-method", "write64", "--vm-madvise", "normal",
	}
}

// stressDir is where stress-ng lies. Its version is asked for, so that the log has it and what it reads of the disk is no pod's page cache.
func (r *rig) stressDir() string {
	r.t.Helper()
	cache, err := parts.Open(parts.Options{Progress: os.Stderr})
	if err != nil {
		r.t.Fatal(err)
	}
	dir, err := cache.Get(r.t.Context(), parts.StressNG)
	if err != nil {
		r.t.Fatal(err)
	}
	command := parts.StressCommand(dir, "--version")
	out, err := exec.CommandContext(r.t.Context(), command[0], command[1:]...).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%q: %v: %s", command, err, out)
	}
	r.tell("the load is %s", strings.TrimSpace(string(out)))
	return dir
}

// stressing begins stress-ng in the cgroup of these directories, where its children begin, too. Were memory to run out, the kernel
// would take it and not the lab.
func (r *rig) stressing(dirs []string, args ...string) *burden {
	r.t.Helper()
	command := parts.StressCommand(r.stressDir(), args...)
	shell := append([]string{"-c", `read x; echo 1000 >/proc/self/oom_score_adj; exec "$@"`, "sh"}, command...)
	l := &burden{t: r.t, words: command, cmd: exec.Command("sh", shell...)}
	l.begin(dirs)
	return l
}

// stressed are what make wants of a pod whose container is stress-ng, which it finds in a folder of the machine.
func (n *served) stressed(args []string) (main, volume string) {
	n.t.Helper()
	const at = "/stress"
	command, err := json.Marshal(parts.StressCommand(at, args...))
	if err != nil {
		n.t.Fatal(err)
	}
	return "command: " + string(command) + ", volumeMounts: [{name: stress, mountPath: " + at + ", readOnly: true}]",
		"volumes: [{name: stress, hostPath: {path: " + n.stressDir() + "}}]"
}
