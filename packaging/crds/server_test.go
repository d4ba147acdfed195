// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package crds_test

import (
	"io/fs"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/packaging/crds"
)

// TestServersOwnChecks: the API server's validation of definitions takes them: structural schemas, rules that compile, and what
// these may cost. test/lab/cluster applies them to a server.
func TestServersOwnChecks(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	for _, f := range files {
		text, err := fs.ReadFile(crds.Files, f)
		if err != nil {
			t.Fatal(err)
		}
		var written apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &written); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(&written)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&written.Spec)
		var d apiextensions.CustomResourceDefinition
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&written, &d, nil); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, v := range written.Spec.Versions {
			if v.Storage {
				d.Status.StoredVersions = []string{v.Name}
			}
		}
		for _, e := range validation.ValidateCustomResourceDefinition(t.Context(), &d) {
			t.Errorf("%s: %.600s", f, e.Error())
		}
	}
}
