// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	analysis "github.com/koord-rt/koord-rt/api/analysis/v1alpha1"
	"github.com/koord-rt/koord-rt/api/config"
	profile "github.com/koord-rt/koord-rt/api/config/v1alpha1"
	quota "github.com/koord-rt/koord-rt/api/quota/v1alpha1"
	strategies "github.com/koord-rt/koord-rt/cluster/slo/config"
)

var (
	example  = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```")
	mdLink   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notAWord = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// manuals are the pages that people read, by path.
func manuals(t *testing.T) map[string]string {
	t.Helper()
	paths := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			rel, relErr := filepath.Rel(root, path)
			paths, err = append(paths, rel), errors.Join(err, relErr)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range paths {
		data, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		out[p] = string(data)
	}
	return out
}

// What the manual shows as a configuration or a strategy can be used as it stands.
func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	found := 0
	for path, text := range manuals(t) {
		if path != "README.md" && !strings.HasPrefix(path, filepath.Join("docs", "user")) {
			continue
		}
		for _, m := range example.FindAllStringSubmatch(text, -1) {
			found++
			if err := load(m[1]); err != nil {
				t.Errorf("%s: %v in\n%s", path, err, m[1])
			}
		}
	}
	if found < 3 {
		t.Errorf("only %d examples were found", found)
	}
}

// load reads an example as the program would that it is meant for.
func load(text string) (err error) {
	switch {
	case strings.Contains(text, "kind: "+config.KindProxy):
		_, _, err = config.LoadProxy([]byte(text))
	case strings.Contains(text, "kind: "+config.KindKoordlet):
		_, _, err = config.LoadKoordlet([]byte(text))
	case strings.Contains(text, "kind: Recommendation"):
		err = yaml.UnmarshalStrict([]byte(text), &analysis.Recommendation{})
	case strings.Contains(text, "kind: ElasticQuotaProfile"):
		err = yaml.UnmarshalStrict([]byte(text), &quota.ElasticQuotaProfile{})
	case strings.Contains(text, "kind: ClusterColocationProfile"):
		namespace, text, _ := strings.Cut(text, "---\n")
		err = errors.Join(yaml.UnmarshalStrict([]byte(namespace), &corev1.Namespace{}), yaml.UnmarshalStrict([]byte(text), &profile.ClusterColocationProfile{}))
	case strings.Contains(text, "kind: Deployment"):
		err = yaml.UnmarshalStrict([]byte(text), &appsv1.Deployment{})
	case strings.HasPrefix(text, "metadata:"): // what a pod has beside what was written
		err = yaml.UnmarshalStrict([]byte(text), &corev1.Pod{})
	case strings.Contains(text, "kind: ConfigMap"):
		var object struct{ Data map[string]string }
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return err
		}
		_, problems := strategies.Parse(object.Data, nil)
		for _, p := range problems {
			err = errors.Join(err, p)
		}
	default:
		_, _, err = config.LoadNRI([]byte(text))
	}
	return err
}

// Every link inside the repository leads to a file and, where it names one, to a heading.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	pages := manuals(t)
	for path, text := range pages {
		for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s: link to %s: %v", path, m[1], err)
			} else if anchor != "" && !hasHeading(pages[target], anchor) {
				t.Errorf("%s: %s has no heading for #%s", path, target, anchor)
			}
		}
	}
}

// hasHeading compares headings in the form in which they become anchors.
func hasHeading(text, anchor string) bool {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		title := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		if strings.ReplaceAll(notAWord.ReplaceAllString(title, ""), " ", "-") == anchor {
			return true
		}
	}
	return false
}
