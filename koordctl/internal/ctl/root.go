// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

// Package ctl holds the commands of koordctl, one file each.
//
// Inputs are the ledgers and status files below the run directory, the kernel and containerd's configuration; output is
// a table or JSON. Everything works without the plugin running. restore is the only command that writes, through
// kernel/apply. Only koordctl's main imports it.
package ctl

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/koord-rt/koord-rt/daemon/run"
	"github.com/koord-rt/koord-rt/kernel/apply"
	"github.com/koord-rt/koord-rt/kernel/root"
)

// ErrFound makes the exit code 1: drift with --exit-code, a failed check, a restore step that failed, a daemon that lives and
// does not work.
var ErrFound = errors.New("something was found")

// Values of --output.
const (
	outTable = "table"
	outJSON  = "json"
)

// env is what every command needs.
type env struct {
	out, err io.Writer
	version  run.Version
	// runDir and hostRoot are flags; output is outTable or outJSON.
	runDir, hostRoot, output string
	// writer and units stand in for the kernel and systemd in tests; nil is the machine's. now and screen are the clock and
	// the terminal's size; nil asks the machine.
	writer apply.Writer
	units  apply.Units
	now    func() time.Time
	screen func() screen
	// in is standard input; nil is the process's.
	in io.Reader
}

// New makes the root command.
func New(v run.Version, out, errOut io.Writer) *cobra.Command {
	return command(&env{out: out, err: errOut, version: v})
}

func command(e *env) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "koordctl",
		Short:         "Explain, check and undo what koord-rt does to the containers of this node",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       e.version.String(),
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if e.output != outTable && e.output != outJSON {
				return fmt.Errorf("--output %q is neither table nor json", e.output)
			}
			return nil
		},
	}
	cmd.SetOut(e.out)
	cmd.SetErr(e.err)
	cmd.SetVersionTemplate("{{.Version}}\n")
	f := cmd.PersistentFlags()
	f.StringVar(&e.runDir, "run-dir", "/run/koord-rt", "run directory of the daemons (below --host-root)")
	f.StringVarP(&e.output, "output", "o", outTable, "table or json")
	f.StringVar(&e.hostRoot, "host-root", "", "directory where the host's / is mounted")
	cmd.AddCommand(explainCommand(e), featuresCommand(e), diffCommand(e), restoreCommand(e), doctorCommand(e), topCommand(e))
	return cmd
}

// path is a host's absolute path as it is seen here.
func (e *env) path(host string) string { return filepath.Join("/", e.hostRoot, host) }

func (e *env) roots() root.Roots {
	return root.Roots{
		Cgroup: e.path("/sys/fs/cgroup"), Proc: e.path("/proc"), Sys: e.path("/sys"), Resctrl: e.path("/sys/fs/resctrl"),
		Dev: e.path("/dev"),
	}
}
