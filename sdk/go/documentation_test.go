package leasehold_test

import (
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"testing"
)

// Every exported name says what it is, but for what an interface of the language says already.
func TestEveryNameIsDocumented(t *testing.T) {
	isOurs := func(file fs.FileInfo) bool { return !strings.HasSuffix(file.Name(), "_test.go") }
	for _, folder := range []string{".", "machine"} {
		packages, err := parser.ParseDir(token.NewFileSet(), folder, isOurs, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range packages {
			found := doc.New(one, folder, 0)
			functions := found.Funcs
			for _, of := range found.Types {
				if of.Doc == "" {
					t.Errorf("%s: %s", folder, of.Name)
				}
				functions = append(append(functions, of.Funcs...), of.Methods...)
			}
			for _, function := range functions {
				if function.Doc == "" && function.Name != "Error" && function.Name != "String" {
					t.Errorf("%s: %s%s", folder, function.Recv, function.Name)
				}
			}
		}
	}
}
