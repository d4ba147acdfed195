// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package parts

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/koord-rt/koord-rt/test/lab"
)

func open(t *testing.T) *Cache {
	t.Helper()
	c, err := Open(Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEnsureBuildsOnce(t *testing.T) {
	t.Parallel()
	c := open(t)
	var builds atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dir, err := c.Ensure(t.Context(), Spec{Name: "p", Version: "1", Recipe: "r"}, func(_ context.Context, dir string) error {
				builds.Add(1)
				return os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644)
			})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(dir, "file")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if builds.Load() != 1 {
		t.Errorf("built %d times", builds.Load())
	}
}

func TestEnsureLeavesNothingAfterAnError(t *testing.T) {
	t.Parallel()
	c := open(t)
	boom := errors.New("boom")
	spec := Spec{Name: "p", Version: "1", Recipe: "r"}
	_, err := c.Ensure(t.Context(), spec, func(context.Context, string) error { return boom })
	if !errors.Is(err, boom) {
		t.Fatalf("error %v, want boom", err)
	}
	entries, err := os.ReadDir(c.Root())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".locks" {
			t.Errorf("%s is left", e.Name())
		}
	}
}

func TestFolderNamesTheRecipe(t *testing.T) {
	t.Parallel()
	a := Spec{Name: "p", Version: "1", Recipe: "r"}
	b := a
	b.Recipe = "s"
	if a.Folder() == b.Folder() {
		t.Error("two recipes share a folder")
	}
}

func TestLockEndsWithContext(t *testing.T) {
	t.Parallel()
	c := open(t)
	unlock, err := c.Lock(t.Context(), "l")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Lock(ctx, "l"); !errors.Is(err, context.Canceled) {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	again, err := c.Lock(t.Context(), "l")
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestEveryNameHasARecipe(t *testing.T) {
	t.Parallel()
	v, err := lab.Versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range Names() {
		if n == Image {
			continue
		}
		b, version, err := recipeOf(n, v)
		if err != nil || version == "" || b.recipe() == "" {
			t.Errorf("%s: version %q, recipe %v, %v", n, version, b, err)
		}
		if g, ok := b.(goBuild); ok && len(g.Packages) == 0 {
			t.Errorf("%s: nothing to build", n)
		}
	}
	if _, _, err := recipeOf("nothing", v); err == nil {
		t.Error("an unknown part was accepted")
	}
}

func TestImageDigests(t *testing.T) {
	t.Parallel()
	layer, err := imageLayer([]byte("busybox"), []string{"busybox", "sh", "sleep"})
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := writeImage(&archive, layer); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for tr := tar.NewReader(&archive); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	var manifest []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	if len(manifest) != 1 || len(manifest[0].RepoTags) != 1 || manifest[0].RepoTags[0] != ImageRef {
		t.Fatalf("manifest %+v", manifest)
	}
	var config struct {
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(files[manifest[0].Layers[0]])
	if len(config.Rootfs.DiffIDs) != 1 || config.Rootfs.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("diff ids %v do not match the layer", config.Rootfs.DiffIDs)
	}
}
