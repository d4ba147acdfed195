// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(broken, []byte("apiVersion: v1\nkind: Config\nclusters: text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args        []string
		code        int
		out, errors string
	}{
		{args: []string{"--version"}, out: "koord-manager devel"},
		{args: []string{"--help"}, errors: "-enable-leader-election"},
		{args: []string{"--roles=none"}, code: 2, errors: `"none" is not known`},
		{args: []string{"--log-format=xml"}, code: 2, errors: "neither text nor json"},
		{args: []string{"--kubeconfig=" + broken}, code: 1, errors: "no connection to an API server"},
	} {
		var out, errs bytes.Buffer
		if code := start(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errors) {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, out.String(), errs.String())
		}
	}
}
