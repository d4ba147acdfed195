// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package ctl

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/koord-rt/koord-rt/daemon/run"
)

// runCluster is top with recorded metrics of a koord-manager on standard input.
func runCluster(t *testing.T, args ...string) (string, error) {
	t.Helper()
	in, err := os.Open("../manager/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out bytes.Buffer
	cmd := command(&env{out: &out, err: &out, in: in, version: run.Version{Program: "koordctl"}})
	cmd.SetArgs(append([]string{"top", "--cluster", "--metrics", "-"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTopCluster(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"top-cluster": nil, "top-cluster-memory": {"--sort", "memory", "-n", "1"}, "top-cluster-json": {"-o", "json"}, "top-cluster-json-cut": {"-o", "json", "--sort", "memory", "-n", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := runCluster(t, args...)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, out)
		})
	}
}

func TestTopClusterRefuses(t *testing.T) {
	t.Parallel()
	for says, args := range map[string][]string{
		"has no views":     {"pods"},
		"--class is of":    {"--class", "BE"},
		"can be read once": {"-w"},
		"--manager-port 0": {"--manager-port", "0"},
		"no figures of the cluster: --metrics nowhere: want http://": {"--metrics", "nowhere"},
	} {
		if out, err := runCluster(t, args...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %q; %s", args, err, says, out)
		}
	}
}
