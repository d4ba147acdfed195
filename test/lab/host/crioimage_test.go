// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package host

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// CRI-O pulls from the folder by digests: every blob that the manifest names is there, with the bytes of the archive.
func TestUnpackImage(t *testing.T) {
	t.Parallel()
	write := func(manifest string) string {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, f := range [][2]string{{"c.json", "config"}, {"layer.tar", "layer"}, {"manifest.json", manifest}} {
			if err := w.WriteHeader(&tar.Header{Name: f[0], Mode: 0o644, Size: int64(len(f[1]))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(f[1])); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dir := filepath.Join(t.TempDir(), "name/image:1")
	if err := unpackImage(write(`[{"Config":"c.json","Layers":["layer.tar"]}]`), dir); err != nil {
		t.Fatal(err)
	}
	type named struct {
		Digest string
		Size   int
	}
	var m struct {
		Config named
		Layers []named
	}
	data, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil || len(m.Layers) != 1 {
		t.Fatalf("manifest %s: %v", data, err)
	}
	for want, n := range map[string]named{"config": m.Config, "layer": m.Layers[0]} {
		got, err := os.ReadFile(filepath.Join(dir, strings.TrimPrefix(n.Digest, "sha256:")))
		if err != nil || string(got) != want || n.Size != len(want) {
			t.Errorf("%s: %+v, %q, %v", want, n, got, err)
		}
	}
	for _, bad := range []string{"[]", "{", `[{"Config":"c.json","Layers":["a","b"]}]`} {
		if err := unpackImage(write(bad), t.TempDir()); err == nil {
			t.Errorf("%s is taken for one image of one layer", bad)
		}
	}
}
