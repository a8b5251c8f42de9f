module paceload

go 1.26
