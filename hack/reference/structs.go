// SPDX-License-Identifier: Apache-2.0
// Copyright The koord-rt Authors

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/koord-rt/koord-rt/api/config"
	"github.com/koord-rt/koord-rt/api/strategy"
)

func configPage(root string) (string, error) {
	defaults, err := yaml.Marshal(config.Default())
	if err != nil {
		return "", fmt.Errorf("print defaults: %w", err)
	}
	body, err := keys(filepath.Join(root, "api", "config"), "NRI")
	if err != nil {
		return "", err
	}
	return `One YAML document in /etc/koord-rt/nri.yaml, or where ` + "`koord-nri --config`" + ` says. Unknown keys, keys given twice and values out of
range are errors. The node strategy may stand in the same file: as a second document of kind NodeSLO, or as a bare spec under the key
strategy.

` + "```yaml\napiVersion: " + config.APIVersion + "\nkind: " + config.KindNRI + "\n```\n\n" + body + "\n## Defaults\n\n```yaml\n" + string(defaults) + "```\n", nil
}

func strategyPage(root string) (string, error) {
	defaults, err := yaml.Marshal(strategy.Default())
	if err != nil {
		return "", fmt.Errorf("print defaults: %w", err)
	}
	body, err := keys(filepath.Join(root, "api", "strategy"), "Spec")
	if err != nil {
		return "", err
	}
	return `The spec of Koordinator's NodeSLO. How to write it, and the other spelling that is accepted, is in [strategy](../user/strategy.md).

` + body + "\n## Defaults\n\nThese hold for what a file does not say: every feature off.\n\n```yaml\n" + string(defaults) + "```\n", nil
}

// source is what one package declares.
type source struct {
	types map[string]*ast.TypeSpec
	docs  map[string]string // type -> comment
	texts map[string]string // string constant -> value
	order []string          // constants as they stand in the source
}

// keys lists the fields of a struct and of the structs it is made of, with their comments; those that another page
// describes are left out.
func keys(dir, top string, elsewhere ...string) (string, error) {
	src, err := parse(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	var queue []string
	queue = append(queue, top)
	for i := 0; i < len(queue); i++ {
		spec, ok := src.types[queue[i]]
		if !ok {
			return "", fmt.Errorf("type %s is not in %s", queue[i], dir)
		}
		st, ok := spec.Type.(*ast.StructType)
		if !ok {
			return "", fmt.Errorf("type %s is no struct", queue[i])
		}
		rows, used, err := src.fields(st, queue[i] == top)
		if err != nil {
			return "", fmt.Errorf("type %s: %w", queue[i], err)
		}
		for _, u := range used {
			if !slices.Contains(queue, u) && !slices.Contains(elsewhere, u) {
				queue = append(queue, u)
			}
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n%s\n", queue[i], src.prose(queue[i], src.docs[queue[i]]), table([]string{"key", "type", "meaning"}, rows))
	}
	return strings.TrimRight(b.String(), "\n") + "\n", nil
}

func parse(dir string) (*source, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no source in %s: %w", dir, err)
	}
	src := &source{types: map[string]*ast.TypeSpec{}, docs: map[string]string{}, texts: map[string]string{}}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("parse source: %w", err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				src.declare(g)
			}
		}
	}
	return src, nil
}

func (src *source) declare(g *ast.GenDecl) {
	for _, s := range g.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			src.types[s.Name.Name] = s
			src.docs[s.Name.Name] = comment(s.Doc, g.Doc)
		case *ast.ValueSpec:
			if g.Tok != token.CONST || len(s.Values) != 1 {
				continue
			}
			if lit, ok := s.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				src.texts[s.Names[0].Name] = strings.Trim(lit.Value, `"`)
				src.order = append(src.order, s.Names[0].Name)
			}
		}
	}
}

// comment is the first of two comments that says something, on one line.
func comment(a, b *ast.CommentGroup) string {
	if text := sentences(a); text != "" {
		return text
	}
	return sentences(b)
}

// sentences are a comment's words without the markers of generators.
func sentences(g *ast.CommentGroup) string {
	var words []string
	for line := range strings.Lines(g.Text()) {
		if !strings.HasPrefix(line, "+") {
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.Join(words, " ")
}

var (
	// link is a reference to another name in a comment: [Name].
	link = regexp.MustCompile(`\[([A-Z][\w.]*)\]`)
	// group is a reference to constants that begin alike: the Name* constants.
	group = regexp.MustCompile(`the ([A-Z]\w*)\* constants`)
	// placeholder is <name>, which Markdown would take for a tag.
	placeholder = regexp.MustCompile(`\S*<\w+>`)
	// copula is how a comment on a field begins: Name is.
	copula = regexp.MustCompile(`^(is|are) `)
)

// prose turns a comment on name into text for people who do not read the code: constants become their values, and the
// Go name at the beginning goes.
func (src *source) prose(name, text string) string {
	text = placeholder.ReplaceAllString(text, "`$0`")
	text = link.ReplaceAllStringFunc(text, func(m string) string {
		if v, ok := src.texts[m[1:len(m)-1]]; ok {
			return code(v)
		}
		return m[1 : len(m)-1]
	})
	text = group.ReplaceAllStringFunc(text, func(m string) string {
		var values []string
		for _, c := range src.order {
			if strings.HasPrefix(c, group.FindStringSubmatch(m)[1]) {
				values = append(values, code(src.texts[c]))
			}
		}
		return strings.Join(values, ", ")
	})
	rest, ok := strings.CutPrefix(text, name)
	if !ok || rest != "" && strings.IndexByte(" ,", rest[0]) < 0 || strings.HasPrefix(rest, " and ") {
		return text
	}
	rest = copula.ReplaceAllString(strings.TrimLeft(rest, " ,"), "")
	if rest == "" {
		return ""
	}
	return strings.ToUpper(rest[:1]) + rest[1:]
}

// fields lists the keys of a struct and the structs that they lead to. A comment above several fields is meant for all.
func (src *source) fields(st *ast.StructType, documented bool) (rows [][]string, used []string, err error) {
	last := ""
	for _, f := range st.Fields.List {
		if inner := src.embedded(f); inner != nil {
			more, leads, err := src.fields(inner, documented)
			if err != nil {
				return nil, nil, err
			}
			rows, used = append(rows, more...), append(used, leads...)
			continue
		}
		if f.Tag == nil || len(f.Names) == 0 {
			continue
		}
		tag, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return nil, nil, fmt.Errorf("read tag: %w", err)
		}
		key, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if key == "" || key == "-" {
			continue
		}
		text := comment(f.Doc, f.Comment)
		switch {
		case text != "":
			last = text
		case strings.Contains(last, f.Names[0].Name):
			text = last
		case documented:
			return nil, nil, fmt.Errorf("key %s has no comment", key)
		}
		kind, leads := src.kind(f.Type)
		if leads != "" && !slices.Contains(used, leads) {
			used = append(used, leads)
		}
		meaning := src.prose(f.Names[0].Name, text)
		switch {
		case meaning == "" && leads != "":
			meaning = "see " + leads
		case meaning == "":
			meaning = "–"
		}
		rows = append(rows, []string{code(key), kind, meaning})
	}
	return rows, used, nil
}

// embedded is the struct whose keys stand among those of the struct around it.
func (src *source) embedded(f *ast.Field) *ast.StructType {
	name, ok := f.Type.(*ast.Ident)
	if !ok || len(f.Names) > 0 || f.Tag != nil || src.types[name.Name] == nil {
		return nil
	}
	st, _ := src.types[name.Name].Type.(*ast.StructType)
	return st
}

// plain are types that are one value in the file.
var plain = map[string]string{
	"bool": "true or false", "string": "string", "int": "integer", "int32": "integer", "int64": "integer", "float64": "number",
	"Duration": "duration", "Quantity": "quantity", "IntOrString": "integer or string",
}

// kind names a field's type for people, and the struct of ours that it leads to.
func (src *source) kind(e ast.Expr) (text, leads string) {
	switch t := e.(type) {
	case *ast.StarExpr:
		return src.kind(t.X)
	case *ast.ArrayType:
		text, leads = src.kind(t.Elt)
		return "list of " + text, leads
	case *ast.MapType:
		text, leads = src.kind(t.Value)
		return "map to " + text, leads
	case *ast.SelectorExpr:
		return "any", ""
	case *ast.Ident:
		if text, ok := plain[t.Name]; ok {
			return text, ""
		}
		if _, ok := src.types[t.Name].Type.(*ast.StructType); ok {
			return t.Name, t.Name
		}
		return "string", ""
	}
	return "any", ""
}
