// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFlags(t *testing.T) {
	t.Parallel()
	good := filepath.Join(t.TempDir(), "good.yaml")
	text := "apiVersion: koord-rt.dev/v1alpha1\nkind: NRIConfig\nstrategyFile: " + good + ".none\n"
	if err := os.WriteFile(good, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte(text+"pluginIndexx: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args     []string
		code     int
		out, err string
	}{
		"version":      {[]string{"--version"}, 0, "koord-nri devel", ""},
		"check good":   {[]string{"--check-config", "--config", good}, 0, "valid: " + good, ""},
		"check bad":    {[]string{"--check-config", "--config", bad}, 1, "", "pluginIndexx"},
		"check absent": {[]string{"--check-config", "--config", bad + ".none"}, 1, "", "no such file"},
		"argument":     {[]string{"start"}, 2, "", `unexpected argument "start"`},
		"unknown flag": {[]string{"--confg", good}, 2, "", "confg"},
		"help":         {[]string{"--help"}, 0, "", "-check-config"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr strings.Builder
			code := start(t.Context(), c.args, &stdout, &stderr)
			if code != c.code || !strings.Contains(stdout.String(), c.out) || !strings.Contains(stderr.String(), c.err) {
				t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout.String(), stderr.String())
			}
		})
	}
}
