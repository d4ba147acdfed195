// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package critest

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// No two names are one image by content unless a spec wants it, and each has a
// repository, a tag and layers.
func TestImagesDiffer(t *testing.T) {
	t.Parallel()
	list, err := images([]byte("busybox"), []string{"busybox", "sh", "ls"}, []byte("server"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, i := range list {
		name := i.Repository + ":" + i.Tag
		if i.Repository == "" || i.Tag == "" || len(i.Layers) == 0 || slices.ContainsFunc(i.Layers, func(l []byte) bool { return len(l) == 0 }) {
			t.Errorf("%s is incomplete", name)
		}
		content := i.User + strings.Join(i.Entrypoint, " ") + string(bytes.Join(i.Layers, nil))
		other, twice := seen[content]
		if same := strings.HasSuffix(i.Repository, "test-image-tags"); twice && !(same && strings.Contains(other, "test-image-tags:")) {
			t.Errorf("%s has the content of %s", name, other)
		}
		seen[content] = name
	}
	if len(list) != 20 {
		t.Errorf("%d images", len(list))
	}
}
